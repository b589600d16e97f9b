#!/usr/bin/env python3
"""Makes a BERT encoder with random weights, of the size of all-MiniLM-L6-v2, of
paraphrase-MiniLM-L3-v2 or of BERT-base.
"""

import argparse
import dataclasses
import json
import pathlib
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
    labels: int = 0  # of a classifier after the pooler; 0: none

    def config(self) -> dict:
        kind = "BertForSequenceClassification" if self.labels else "BertModel"
        names = {"id2label": {str(each): f"label {each}" for each in range(self.labels)},
                 "label2id": {f"label {each}": each for each in range(self.labels)}}
        return {
            "architectures": [kind], "model_type": "bert", "vocab_size": self.vocab,
            "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "max_position_embeddings": self.positions, "type_vocab_size": 2, "hidden_act": "gelu",
            "layer_norm_eps": self.norm_eps, "torch_dtype": "bfloat16",
            "sluice": {"tokenizer": "none", "embedding": {"pooling": "mean"}},
        } | (names if self.labels else {})


SIZES = {"minilm": Encoder(), "minilm_l3": Encoder(layers=3),
         "bert_base": Encoder(hidden=768, intermediate=3072, layers=12, heads=12)}


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
    if shape.labels:
        linear("pooler.dense", shape.hidden, shape.hidden)
        linear("classifier", shape.labels, shape.hidden)
    return tensors


def write(directory: pathlib.Path, seed: int, shape: Encoder = SIZES["minilm"]) -> None:
    """Writes the checkpoint in bf16."""
    def stored(name: str) -> str:
        return f"bert.{name}" if shape.labels and not name.startswith("classifier") else name

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(shape.config()))
    save_file({stored(name): tensor.astype(ml_dtypes.bfloat16)
               for name, tensor in tensors_of(shape, seed).items()},
              directory / "model.safetensors", metadata={"format": "pt"})


def shape_of(directory: pathlib.Path) -> Encoder:
    """Returns the shape of a checkpoint that write() has written."""
    config = json.loads((directory / "config.json").read_text())
    return Encoder(config["vocab_size"], config["hidden_size"], config["intermediate_size"],
                   config["num_hidden_layers"], config["num_attention_heads"],
                   config["max_position_embeddings"], config["layer_norm_eps"],
                   len(config.get("id2label", {})))


def read(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a checkpoint in f32, by their names without the model's."""
    return {name.removeprefix("bert."): tensor.astype(np.float32)
            for name, tensor in load_file(directory / "model.safetensors").items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--size", choices=SIZES, default="minilm")
    parser.add_argument("--labels", type=int, default=0, help="of a classifier; 0: embeddings")
    options = parser.parse_args()
    shape = dataclasses.replace(SIZES[options.size], labels=options.labels)
    write(options.folder, 1, shape)


if __name__ == "__main__":
    main()
