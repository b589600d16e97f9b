"""A server of the protocol with predefined answers."""

import concurrent.futures
import dataclasses
import time

import grpc
from conftest import free_port
from sluice_client import Tensor, _protocol


@dataclasses.dataclass
class Refusal:
    code: str
    pushback_ms: int | None = None
    reason: str = "full"


class ScriptedServer:
    """Answers each call with the next entry of `script`: a Refusal, or one generated token's text.
    With `infer`, this function of a request and its context answers ModelInfer instead, and each
    model has metadata, with the property `fingerprint` if the function of this name is given.

    For each call, `arrivals` has its time, `times_left` the time until its deadline, and
    `metadata` its metadata."""

    def __init__(self, *script, infer=None, fingerprint=None):
        self.script = list(script)
        self.arrivals = []
        self.times_left = []
        self.metadata = []
        self.address = f"127.0.0.1:{free_port()}"
        method, stream = _protocol.MODEL_INFER, _protocol.MODEL_STREAM_INFER
        described = _protocol.MODEL_METADATA
        of_model = {
            "ModelMetadata": grpc.unary_unary_rpc_method_handler(
                lambda request, _: described.response(
                    name=request.name,
                    properties={"fingerprint": fingerprint()} if fingerprint else {}),
                described.request.FromString, described.response.SerializeToString)
        }
        handler = grpc.method_handlers_generic_handler(
            "inference.GRPCInferenceService",
            {
                **(of_model if infer else {}),
                "ModelInfer": grpc.unary_unary_rpc_method_handler(
                    infer or self._infer, method.request.FromString,
                    method.response.SerializeToString
                ),
                "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
                    self._stream, stream.request.FromString, stream.response.SerializeToString
                ),
            },
        )
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(32 if infer else 4))
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()

    def _next(self, context):
        self.arrivals.append(time.monotonic())
        self.times_left.append(context.time_remaining())
        self.metadata.append(dict(context.invocation_metadata()))
        return self.script.pop(0)

    def _infer(self, request, context):
        step = self._next(context)
        if isinstance(step, Refusal):
            if step.pushback_ms is not None:
                context.set_trailing_metadata([("grpc-retry-pushback-ms", str(step.pushback_ms)),
                                               ("sluice-reason", step.reason)])
            context.abort(grpc.StatusCode[step.code], "scripted refusal")
        return _answer(step)

    def _stream(self, requests, context):
        next(requests)
        step = self._next(context)
        for each in step if isinstance(step, list) else [step]:
            if not isinstance(each, Refusal):
                yield _protocol.MODEL_STREAM_INFER.response(infer_response=_answer(each))
                continue
            refused = _protocol.MODEL_STREAM_INFER.response(error_message="scripted refusal")
            parameters = refused.infer_response.parameters
            parameters["error_code"].string_param = each.code
            if each.pushback_ms is not None:
                parameters["retry_pushback_ms"].int64_param = each.pushback_ms
            yield refused


def _answer(text):
    answer = _protocol.MODEL_INFER.response(model_name="scripted")
    for tensor in (
        Tensor.of("output_ids", "INT32", (1, 1), [1]),
        Tensor.of("logprobs", "FP32", (1, 1), [-0.5]),
        Tensor.of("finish_reason", "BYTES", (1, 1), ["length"]),
        Tensor.of("text_output", "BYTES", (1, 1), [text]),
    ):
        answer.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        answer.raw_output_contents.append(tensor.raw)
    return answer
