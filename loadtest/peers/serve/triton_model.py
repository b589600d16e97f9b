"""The models of Triton's Python backend: onnxruntime on the batches of the dynamic batcher."""

# The backend fills its module after importing this one, so annotations are evaluated late.
from __future__ import annotations

import json
import pathlib

import numpy as np
import triton_python_backend_utils as triton
from batcher import partition


def cancelled() -> triton.InferenceResponse:
    error = triton.TritonError("the client gave up the call", triton.TritonError.CANCELLED)
    return triton.InferenceResponse(error=error)


class Model:
    """Computes rows of similar lengths together, because Triton batches only by arrival. Subclasses
    load the model that computes them.
    """

    def initialize(self, args: dict[str, str]) -> None:
        parameters = {name: value["string_value"]
                      for name, value in json.loads(args["model_config"])["parameters"].items()}
        self._max_padding = float(parameters["max_padding"])
        self.load(pathlib.Path(parameters["checkpoint"]), int(parameters["threads"]), parameters)

    def load(self, checkpoint: pathlib.Path, threads: int, parameters: dict[str, str]) -> None:
        raise NotImplementedError

    def compute(self, prompts: list[np.ndarray]) -> list[list[triton.Tensor]]:
        """Returns the outputs of each prompt."""
        raise NotImplementedError

    def _answer(self, prompts: list[np.ndarray]) -> list[triton.InferenceResponse]:
        made: dict[int, triton.InferenceResponse] = {}
        lengths = [len(prompt) for prompt in prompts]
        for rows in partition(lengths, len(prompts), self._max_padding):
            outputs = self.compute([prompts[row] for row in rows])
            made |= {row: triton.InferenceResponse(of) for row, of in zip(rows, outputs)}
        return [made[row] for row in range(len(prompts))]

    def execute(self, requests: list) -> list:
        gone = [request.is_cancelled() for request in requests]
        answers = iter(self._answer([
            triton.get_input_tensor_by_name(request, "input_ids").as_numpy()[0]
            for request, given_up in zip(requests, gone) if not given_up]))
        return [cancelled() if given_up else next(answers) for given_up in gone]


class Decoder(Model):
    def load(self, checkpoint, threads, parameters) -> None:
        from onnxruntime_server import load
        self._next_tokens = load(checkpoint, threads)

    def compute(self, prompts):
        return [[triton.Tensor("output_ids", np.array([[token]], np.int32)),
                 triton.Tensor("logprobs", np.array([[logprob]], np.float32))]
                for token, logprob in zip(*self._next_tokens(prompts))]


class Encoder(Model):
    def load(self, checkpoint, threads, parameters) -> None:
        from encoder_engines import onnxruntime_of
        self._output = parameters["output"]
        self._run = onnxruntime_of(checkpoint, parameters["precision"], threads)

    def compute(self, prompts):
        from encoder_engines import padded_mask
        return [[triton.Tensor(self._output, answer[None])]
                for answer in self._run(*padded_mask(prompts))]
