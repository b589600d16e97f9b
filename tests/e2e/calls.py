"""Helpers for calls in progress and for calls that fail."""

import json
import queue
import shutil
import struct

import grpc
from conftest import DEMO
from infer import text_inputs
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S


class Call:
    """A call in progress on a separate client."""

    def __init__(self, server, request_id="", inputs=None, timeout=None, **parameters):
        self._client = server.client()
        self._ended = queue.Queue()
        parameters.setdefault("max_tokens", 4)
        self._call = self._client.async_infer(
            "demo", inputs or text_inputs("And it came"), request_id=request_id, timeout=timeout,
            callback=lambda result, error: self._ended.put((result, error)), parameters=parameters)

    def cancel(self):
        self._call.cancel()

    def end(self, within_s=PATIENCE_S):
        """Returns the outputs as {name: array}. Raises the error of a call that fails."""
        try:
            result, error = self._ended.get(timeout=within_s)
        finally:
            self._client.close()
        if error is not None:
            raise error
        return {output.name: result.as_numpy(output.name)
                for output in result.get_response().outputs}

    def status(self, within_s=PATIENCE_S):
        """Returns the name of the call's status, "OK" if the call was answered."""
        try:
            self.end(within_s)
        except InferenceServerException as error:
            return error.status().removeprefix("StatusCode.")
        return "OK"


def trailers(server, request):
    """Returns the status and the trailers of a unary call. The call must fail."""
    from tritonclient.grpc import service_pb2_grpc
    with grpc.insecure_channel(server.grpc) as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(
                request, timeout=PATIENCE_S
            )
        except grpc.RpcError as error:
            return error.code(), dict(error.trailing_metadata())
    raise AssertionError("the call was answered, but it must fail")


POISON = 7  # A byte that occurs in no prompt of the tests.


def poisonous_model(directory):
    """Copies the demo model and changes it: logits are NaN for any prompt that contains POISON."""
    shutil.copytree(DEMO, directory, ignore=shutil.ignore_patterns("*.py", "train*"))
    path = directory / "model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8:8 + size]), bytearray(data[8 + size:])
    embedding = header["model.embed_tokens.weight"]
    assert embedding["dtype"] == "BF16"
    begin, end = embedding["data_offsets"]
    # The weights are untied because the poisoned row would otherwise change every logit.
    header["lm_head.weight"] = {**embedding,
                                "data_offsets": [len(tensors), len(tensors) + end - begin]}
    tensors += tensors[begin:end]
    width = embedding["shape"][1]
    row = begin + 2 * width * POISON
    tensors[row:row + 2 * width] = struct.pack("<H", 0x7FC0) * width  # NaN
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + tensors)
    config = json.loads((directory / "config.json").read_text())
    config["tie_word_embeddings"] = False
    (directory / "config.json").write_text(json.dumps(config))
    return directory
