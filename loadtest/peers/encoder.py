"""Makes a BERT encoder with random weights, of the size of all-MiniLM-L6-v2, and draws lengths."""

import json
import pathlib
import sys
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file


@dataclass(frozen=True)
class Encoder:
    vocab: int = 30522
    hidden: int = 384
    intermediate: int = 1536
    layers: int = 6
    heads: int = 12
    positions: int = 512
    norm_eps: float = 1e-12

    def config(self) -> dict:
        return {
            "architectures": ["BertModel"], "model_type": "bert", "vocab_size": self.vocab,
            "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "max_position_embeddings": self.positions, "type_vocab_size": 2, "hidden_act": "gelu",
            "layer_norm_eps": self.norm_eps, "torch_dtype": "bfloat16",
            "sluice": {"tokenizer": "none", "embedding": {"pooling": "mean"}},
        }


def tensors_of(shape: Encoder, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    tensors = {}

    def linear(name: str, rows: int, columns: int) -> None:
        drawn = random.standard_normal((rows, columns), np.float32)
        tensors[f"{name}.weight"] = drawn / np.float32(np.sqrt(columns))
        tensors[f"{name}.bias"] = np.float32(0.1) * random.standard_normal(rows, np.float32)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + np.float32(0.1) * random.standard_normal(
            shape.hidden, np.float32)
        tensors[f"{name}.bias"] = np.float32(0.1) * random.standard_normal(shape.hidden, np.float32)

    for table, rows in (("word", shape.vocab), ("position", shape.positions), ("token_type", 2)):
        tensors[f"embeddings.{table}_embeddings.weight"] = np.float32(
            0.3) * random.standard_normal((rows, shape.hidden), np.float32)
    norm("embeddings.LayerNorm")
    for layer in range(shape.layers):
        prefix = f"encoder.layer.{layer}."
        for each in ("attention.self.query", "attention.self.key", "attention.self.value",
                     "attention.output.dense"):
            linear(prefix + each, shape.hidden, shape.hidden)
        norm(prefix + "attention.output.LayerNorm")
        linear(prefix + "intermediate.dense", shape.intermediate, shape.hidden)
        linear(prefix + "output.dense", shape.hidden, shape.intermediate)
        norm(prefix + "output.LayerNorm")
    return tensors


def write(directory: pathlib.Path, seed: int) -> None:
    """Writes the checkpoint in bf16."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(Encoder().config()))
    save_file({name: tensor.astype(ml_dtypes.bfloat16)
               for name, tensor in tensors_of(Encoder(), seed).items()},
              directory / "model.safetensors", metadata={"format": "pt"})


def read(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a checkpoint in f32."""
    return {name: tensor.astype(np.float32)
            for name, tensor in load_file(directory / "model.safetensors").items()}


def lengths(count: int, seed: int) -> np.ndarray:
    """Returns lengths of texts, log-normal around 24 tokens, at most 256."""
    drawn = np.random.default_rng(seed).lognormal(np.log(24), 0.8, count)
    return np.clip(np.round(drawn), 1, 256).astype(np.int64)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), seed=1)
