"""Helpers for streams through tritonclient's API."""

import queue

import numpy as np
import tritonclient.grpc as grpcclient
from waiting import PATIENCE_S


class Stream:
    """One stream on a separate client. `answers` holds responses in order of arrival."""

    def __init__(self, daemon):
        self.client = daemon.client()
        self.answers = queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def send(
        self,
        inputs,
        request_id="",
        outputs=None,
        model="demo",
        empty_final=False,
        timeout=None,
        **parameters
    ):
        self.client.async_stream_infer(
            model, inputs, request_id=request_id, timeout=timeout,
            outputs=outputs and [grpcclient.InferRequestedOutput(name) for name in outputs],
            enable_empty_final_response=empty_final, parameters=parameters or None)

    def next(self):
        """Returns the next response. Raises the error of a request that fails."""
        result, error = self.answers.get(timeout=PATIENCE_S)
        if error is not None:
            raise error
        return result

    def answer(self):
        """Returns all responses to the only request in progress."""
        return self.answers_of(1)[0]

    def answers_of(self, requests):
        """Returns the responses to `requests` requests, one list each, sorted by request id."""
        pieces, final = {}, set()
        while len(final) < requests:
            result = self.next()
            request_id = result.get_response().id
            assert request_id not in final, "a response after the final one"
            pieces.setdefault(request_id, []).append(result)
            if is_final(result):
                final.add(request_id)
        return [pieces[request_id] for request_id in sorted(pieces)]

    def cancel(self):
        self.client.stop_stream(cancel_requests=True)


def is_final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


def arrays(result):
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def joined(pieces):
    """Joins the responses to a one-row request into the answer of a unary call."""
    parts = [arrays(piece) for piece in pieces]
    parts = [part for part in parts if part]
    whole = dict(parts[-1])  # The last part has the prompt's outputs and the finish reason.
    for name in ("output_ids", "logprobs", "top_ids", "top_logprobs"):
        if name in whole:
            whole[name] = np.concatenate([part[name] for part in parts], axis=1)
    if "sequence_length" in whole:
        whole["sequence_length"] = sum(part["sequence_length"] for part in parts)
    if "text_output" in whole:
        whole["text_output"] = sum((part["text_output"] for part in parts),
                                   start=np.array([[b""]], np.object_))
    return whole


def stream(daemon, inputs, **request):
    """Sends one request on a new stream; returns the joined answer, like `infer`."""
    with Stream(daemon) as one:
        one.send(inputs, **request)
        return joined(one.answer())
