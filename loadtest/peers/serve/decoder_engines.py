"""Runs the Llama of checkpoint.py with libraries in process: scores, or greedy tokens, of padded
batches of prompts.

`score` returns {"labels": the next token of each prompt, "values": [its log-probability]}.
`generate` returns {"tokens": the requested number of tokens for each prompt}.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from batcher import padded

Prompts = Sequence[np.ndarray]


def scored(tokens, logprobs) -> dict[str, list]:
    return {"labels": [np.int32(token) for token in tokens],
            "values": [np.array([value], np.float32) for value in logprobs]}


class PyTorch:
    def __init__(self, checkpoint: pathlib.Path, precision: str, threads: int):
        import torch
        from transformers import LlamaForCausalLM
        torch.set_num_threads(threads)
        self._torch = torch
        self._model = LlamaForCausalLM.from_pretrained(
            checkpoint, dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
            attn_implementation="sdpa").eval()

    def score(self, prompts: Prompts) -> dict[str, list]:
        torch = self._torch
        rows, lengths = padded(prompts)
        with torch.inference_mode():
            # Padding is on the right and attention is causal, so no row needs a mask.
            states = self._model.model(torch.from_numpy(rows), use_cache=False).last_hidden_state
            last = states[torch.arange(len(rows)), torch.from_numpy(lengths - 1).long()]
            best = torch.log_softmax(self._model.lm_head(last).float(), -1).max(-1)
        return scored(best.indices.tolist(), best.values.tolist())

    def generate(self, prompts: Prompts, count: int) -> dict[str, list]:
        """Pads on the left, as Hugging Face's generation requires."""
        torch = self._torch
        longest = max(len(prompt) for prompt in prompts)
        rows = np.zeros((len(prompts), longest), np.int64)
        mask = np.zeros_like(rows)
        for row, prompt in enumerate(prompts):
            rows[row, longest - len(prompt):], mask[row, longest - len(prompt):] = prompt, 1
        with torch.inference_mode():
            made = self._model.generate(
                torch.from_numpy(rows), attention_mask=torch.from_numpy(mask), do_sample=False,
                max_new_tokens=count, min_new_tokens=count, pad_token_id=0)
        return {"tokens": list(made[:, longest:].numpy().astype(np.int32))}


class Onnx:
    """Runs the graph with onnxruntime. It only scores, because the graph keeps no cache."""

    def __init__(self, checkpoint: pathlib.Path, precision: str, threads: int):
        import onnxruntime
        from onnx_model import export
        path = pathlib.Path(export(checkpoint))
        if precision == "int8":
            from onnx_int8 import quantized
            path = quantized(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = onnxruntime.InferenceSession(str(path), options,
                                                     providers=["CPUExecutionProvider"])

    def score(self, prompts: Prompts) -> dict[str, list]:
        rows, lengths = padded(prompts)
        return scored(*self._session.run(["token", "logprob"],
                                         {"input_ids": rows, "lengths": lengths}))


class OpenVino:
    """Runs the graph of standard operators with OpenVINO. It only scores."""

    def __init__(self, checkpoint: pathlib.Path, precision: str, threads: int):
        from checkpoint import read
        from onnx_model import export
        from openvino_model import compiled
        random, vocabulary = np.random.default_rng(5), read(checkpoint)[0].vocab
        prompts = [random.integers(3, vocabulary, length)
                   for length in random.integers(1, 128, 64)]
        self._model = compiled(export(checkpoint, fused=False), precision, threads, [
            dict(zip(("input_ids", "lengths"), padded([each]), strict=True)) for each in prompts])

    def score(self, prompts: Prompts) -> dict[str, list]:
        rows, lengths = padded(prompts)
        made = self._model({"input_ids": rows, "lengths": lengths})
        return scored(made["token"].tolist(), made["logprob"].tolist())


class CTranslate2:
    def __init__(self, checkpoint: pathlib.Path, precision: str, threads: int):
        import ctranslate2
        from ctranslate2_model import export, token
        self._token = token
        self._generator = ctranslate2.Generator(
            str(export(checkpoint)), inter_threads=1, intra_threads=threads,
            compute_type={"f32": "float32"}.get(precision, precision))

    def _run(self, prompts: Prompts, count: int, **options) -> list:
        """Generates. Prompts of one token are batched separately: next to other prompts, the
        library returns prompt tokens of these in place of generated ones.
        """
        made: list = [None] * len(prompts)
        for single in (True, False):
            places = [place for place, prompt in enumerate(prompts) if (len(prompt) == 1) == single]
            if places:
                answers = self._generate([prompts[place] for place in places], count, options)
                for place, answer in zip(places, answers, strict=True):
                    made[place] = answer
        return made

    def _generate(self, prompts: Prompts, count: int, options: dict) -> list:
        return self._generator.generate_batch(
            [[self._token(each) for each in prompt] for prompt in prompts], max_length=count,
            min_length=count, sampling_topk=1, include_prompt_in_result=False, **options)

    def score(self, prompts: Prompts) -> dict[str, list]:
        made = self._run(prompts, 1, return_scores=True)
        return scored([each.sequences_ids[0][0] for each in made],
                      [each.scores[0] for each in made])

    def generate(self, prompts: Prompts, count: int) -> dict[str, list]:
        return {"tokens": [np.array(each.sequences_ids[0], np.int32)
                           for each in self._run(prompts, count)]}


def llama_cpp_of(checkpoint: pathlib.Path, precision: str, threads: int):
    from gguf_model import export
    from llama_native import Decoder
    return Decoder(export(checkpoint, precision), threads)


DECODERS = {"pytorch": PyTorch, "onnxruntime": Onnx, "openvino": OpenVino,
            "ctranslate2": CTranslate2, "llama_cpp": llama_cpp_of}
