"""Runs the encoder with libraries in process: padded batches of token ids in, embeddings out. If
the checkpoint has a classifier, the output is its scores.
"""

import pathlib
import sys
from collections.abc import Callable, Sequence

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from encoder import read, shape_of  # noqa: E402
from encoder_traffic import TRAFFIC  # noqa: E402

# Functions from ids and mask, both int64 [rows, longest], to float32 [rows, values].
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]


def padded_mask(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the texts padded with zeros on the right, and a mask that is 1 at their tokens."""
    ids = np.zeros((len(texts), max(len(text) for text in texts)), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, :len(text)], mask[row, :len(text)] = text, 1
    return ids, mask


def unpadded(ids: np.ndarray, mask: np.ndarray) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(ids, mask.sum(axis=1), strict=True)]


def fused_graph(checkpoint: pathlib.Path, precision: str) -> pathlib.Path:
    """Returns onnxruntime's graph. Writes it if it is missing."""
    from encoder_onnx import export
    path = export(checkpoint, fused=True)
    if precision == "int8":
        from onnx_int8 import quantized
        path = quantized(path)
    return path


def onnxruntime_of(checkpoint: pathlib.Path, precision: str, threads: int) -> Run:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(fused_graph(checkpoint, precision), options,
                                           providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]


def openvino_of(checkpoint: pathlib.Path, precision: str, threads: int) -> Run:
    from encoder_onnx import export
    from openvino_model import compiled
    random, vocabulary = np.random.default_rng(5), shape_of(checkpoint).vocab
    texts = [random.integers(0, vocabulary, (1, length))
             for length in TRAFFIC["embedding"].lengths(64, 5)]
    model = compiled(export(checkpoint, fused=False), precision, threads,
                     [{"ids": ids, "mask": np.ones_like(ids)} for ids in texts])
    # The result is a view of memory that the next run overwrites.
    return lambda ids, mask: model({"ids": ids, "mask": mask})[0].copy()


def ctranslate2_of(checkpoint: pathlib.Path, precision: str, threads: int) -> Run:
    import ctranslate2
    from encoder_ctranslate2 import export
    encoder = ctranslate2.Encoder(str(export(checkpoint)), intra_threads=threads,
                                  compute_type={"f32": "float32"}.get(precision, precision))
    tensors = read(checkpoint) if shape_of(checkpoint).labels else {}

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        made = encoder.forward_batch(unpadded(ids, mask))
        if tensors:  # the library has no classifier; computing it by row adds no difference
            return np.stack([tensors["classifier.weight"] @ row + tensors["classifier.bias"]
                             for row in np.asarray(made.pooler_output)])
        states = np.asarray(made.last_hidden_state)
        return (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]

    return run


def pytorch_of(checkpoint: pathlib.Path, precision: str, threads: int) -> Run:
    import torch
    from transformers import BertForSequenceClassification, BertModel
    torch.set_num_threads(threads)
    kind = BertForSequenceClassification if shape_of(checkpoint).labels else BertModel
    options = {} if shape_of(checkpoint).labels else {"add_pooling_layer": False}
    model = kind.from_pretrained(
        checkpoint, dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
        attn_implementation="sdpa", **options).eval()

    @torch.inference_mode()
    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        mask = torch.from_numpy(mask)
        made = model(input_ids=torch.from_numpy(ids), attention_mask=mask)
        if "logits" in made:
            return made.logits.float().numpy()
        states = made.last_hidden_state.float() * mask[:, :, None]
        return (states.sum(dim=1) / mask.sum(dim=1)[:, None]).numpy()

    return run


def llama_cpp_of(checkpoint: pathlib.Path, precision: str, threads: int) -> Run:
    from encoder_gguf import export
    from llama_native import Embedder
    embedder = Embedder(export(checkpoint, precision), threads)
    return lambda ids, mask: embedder(unpadded(ids, mask))


ENGINES = {"onnxruntime": onnxruntime_of, "openvino": openvino_of, "ctranslate2": ctranslate2_of,
           "pytorch": pytorch_of, "llama_cpp": llama_cpp_of}
