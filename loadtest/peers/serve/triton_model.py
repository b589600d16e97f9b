"""Triton's Python backend: onnxruntime on what the dynamic batcher has put together."""

# The backend fills its module after this one is imported, so that annotations must wait.
from __future__ import annotations

import json
import pathlib

import numpy as np
import triton_python_backend_utils as triton
from onnxruntime_server import load


def response(token: int, logprob: float) -> triton.InferenceResponse:
    return triton.InferenceResponse(
        [triton.Tensor("output_ids", np.array([[token]], np.int32)),
         triton.Tensor("logprobs", np.array([[logprob]], np.float32))])


def cancelled() -> triton.InferenceResponse:
    error = triton.TritonError("nobody waits for it", triton.TritonError.CANCELLED)
    return triton.InferenceResponse(error=error)


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        parameters = {name: value["string_value"]
                      for name, value in json.loads(args["model_config"])["parameters"].items()}
        self._next_tokens = load(pathlib.Path(parameters["checkpoint"]), int(parameters["threads"]))

    def execute(self, requests: list) -> list:
        live = [request for request in requests if not request.is_cancelled()]
        prompts = [triton.get_input_tensor_by_name(request, "input_ids").as_numpy()[0]
                   for request in live]
        tokens, logprobs = self._next_tokens(prompts) if prompts else ([], [])
        answers = iter(zip(tokens, logprobs))
        return [response(*next(answers)) if request in live else cancelled()
                for request in requests]
