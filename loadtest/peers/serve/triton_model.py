"""The model of Triton's Python backend: runs onnxruntime on the batches of the dynamic batcher."""

# The backend fills its module after this one is imported, so annotations are evaluated late.
from __future__ import annotations

import json
import pathlib

import numpy as np
import triton_python_backend_utils as triton
from batcher import partition
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
        self._max_padding = float(parameters["max_padding"])
        self._next_tokens = load(pathlib.Path(parameters["checkpoint"]), int(parameters["threads"]))

    def _answer(self, prompts: list[np.ndarray]) -> list[triton.InferenceResponse]:
        """Computes rows of similar lengths together, because Triton batches by arrival alone."""
        made: dict[int, triton.InferenceResponse] = {}
        lengths = [len(prompt) for prompt in prompts]
        for rows in partition(lengths, len(prompts), self._max_padding):
            tokens, logprobs = self._next_tokens([prompts[row] for row in rows])
            made |= {row: response(token, logprob)
                     for row, token, logprob in zip(rows, tokens, logprobs)}
        return [made[row] for row in range(len(prompts))]

    def execute(self, requests: list) -> list:
        gone = [request.is_cancelled() for request in requests]
        answers = iter(self._answer([
            triton.get_input_tensor_by_name(request, "input_ids").as_numpy()[0]
            for request, given_up in zip(requests, gone) if not given_up]))
        return [cancelled() if given_up else next(answers) for given_up in gone]
