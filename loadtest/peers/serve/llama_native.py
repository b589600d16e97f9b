"""Runs llama.cpp through its C interface, as llama-cpp-python exposes it: sequences in, states or
logits out. Build that package for the machine (GGML_NATIVE); a wheel may only have AVX2.
"""

import ctypes
import pathlib
from collections.abc import Iterable, Sequence

import llama_cpp
import numpy as np

TEXT_POSITIONS = 320  # of an embedded text
PROMPT_POSITIONS = 640  # of a prompt and its generated tokens
SEQUENCES = 32


@llama_cpp.llama_log_callback
def _silent(level, text, data):
    del level, text, data


class Context:
    """A model and a context for up to `sequences` of `positions` tokens each."""

    def __init__(self, path: pathlib.Path, threads: int, positions: int, embeddings: bool = False,
                 sequences: int = SEQUENCES):
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            raise ValueError(f"llama.cpp cannot load {path}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model))
        made = llama_cpp.llama_context_default_params()
        made.n_ctx = sequences * positions
        made.n_batch = made.n_ubatch = made.n_ctx
        if not embeddings:
            made.n_ubatch = 512
        made.n_seq_max = sequences
        made.n_threads = made.n_threads_batch = threads
        made.embeddings = embeddings
        self.raw = llama_cpp.llama_init_from_model(self._model, made)
        if not self.raw:
            raise ValueError("llama.cpp cannot make a context")
        self._batch = llama_cpp.llama_batch_init(made.n_ctx, 0, 1)
        self._memory = llama_cpp.llama_get_memory(self.raw)
        # The number of values per sequence: of a classifier, or of a pooled state.
        ranks = llama_cpp.llama_pooling_type(self.raw) == llama_cpp.LLAMA_POOLING_TYPE_RANK
        self.width = (llama_cpp.llama_model_n_cls_out if ranks else
                      llama_cpp.llama_model_n_embd)(self._model)

    def forget(self) -> None:
        if self._memory:
            llama_cpp.llama_memory_clear(self._memory, True)

    def compute(self, rows: Iterable[tuple[int, int, int, bool]]) -> None:
        """Computes tokens. Each has a position, a sequence and a flag that requests its logits."""
        batch, count = self._batch, 0
        for token, position, sequence, wanted in rows:
            batch.token[count], batch.pos[count] = token, position
            batch.n_seq_id[count], batch.seq_id[count][0] = 1, sequence
            batch.logits[count] = wanted
            count += 1
        batch.n_tokens = count
        if llama_cpp.llama_decode(self.raw, batch):
            raise RuntimeError("llama_decode failed")


class Embedder:
    def __init__(self, path: pathlib.Path, threads: int):
        self._context = Context(path, threads, TEXT_POSITIONS, embeddings=True)

    def __call__(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        context = self._context
        context.forget()
        context.compute((token, position, row, True) for row, text in enumerate(texts)
                        for position, token in enumerate(text))
        return np.stack([np.ctypeslib.as_array(
            llama_cpp.llama_get_embeddings_seq(context.raw, row), (context.width,)).copy()
            for row in range(len(texts))])


class Decoder:
    """Computes the prompts of a call together, then a token of each of them in every step."""

    def __init__(self, path: pathlib.Path, threads: int):
        self._context = Context(path, threads, PROMPT_POSITIONS)

    def _logits(self, place: int) -> np.ndarray:
        pointer = llama_cpp.llama_get_logits_ith(self._context.raw, place)
        return np.ctypeslib.as_array(pointer, (self._context.vocabulary,))

    def prefill(self, prompts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the logits of the last token of each prompt, valid until the next call."""
        self._context.forget()
        rows = [(int(token), position, row, position + 1 == len(prompt))
                for row, prompt in enumerate(prompts) for position, token in enumerate(prompt)]
        self._context.compute(rows)
        ends = np.cumsum([len(prompt) for prompt in prompts]) - 1
        return [self._logits(int(end)) for end in ends]

    def step(self, tokens: Sequence[int], positions: Sequence[int]) -> list[np.ndarray]:
        """Computes one token of each sequence and returns their logits."""
        self._context.compute((token, position, row, True) for row, (token, position)
                              in enumerate(zip(tokens, positions, strict=True)))
        return [self._logits(row) for row in range(len(tokens))]

    def score(self, prompts: Sequence[np.ndarray]) -> dict[str, list]:
        tokens, values = [], []
        for logits in self.prefill(prompts):
            exact = logits.astype(np.float64)
            best = int(exact.argmax())
            tokens.append(np.int32(best))
            total = np.log(np.exp(exact - exact[best]).sum())
            values.append(np.array([-total], np.float32))
        return {"labels": tokens, "values": values}

    def generate(self, prompts: Sequence[np.ndarray], count: int) -> dict[str, list]:
        tokens = [int(logits.argmax()) for logits in self.prefill(prompts)]
        made = [tokens]
        for number in range(count - 1):
            tokens = [int(logits.argmax()) for logits in self.step(
                tokens, [len(prompt) + number for prompt in prompts])]
            made.append(tokens)
        return {"tokens": list(np.array(made, np.int32).T)}
