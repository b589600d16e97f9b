"""Converts the encoder to llama.cpp's format, without a vocabulary, because its inputs are ids."""

import pathlib
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from encoder import Encoder, read, shape_of  # noqa: E402
from gguf_model import FILE_TYPES, add_tensor  # noqa: E402

LAYER_NAMES = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}
OTHER_NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "pooler.dense": "cls", "classifier": "cls.output",
}


def name_of(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in OTHER_NAMES:
        return f"{OTHER_NAMES[stem]}.{kind}"
    number, part = stem.removeprefix("encoder.layer.").split(".", 1)
    return f"blk.{number}.{LAYER_NAMES[part]}.{kind}"


def describe(writer: gguf.GGUFWriter, shape: Encoder) -> None:
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(shape.norm_eps)
    writer.add_causal_attention(False)
    if shape.labels:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels([f"label {each}" for each in range(shape.labels)])
    else:
        writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(shape.vocab)
    writer.add_token_type_count(2)


def export(checkpoint: pathlib.Path, precision: str) -> pathlib.Path:
    """Writes the model into the checkpoint's folder if it is missing."""
    path = checkpoint / f"model_{precision}.gguf"
    if path.exists():
        return path
    writer = gguf.GGUFWriter(path, "bert")
    describe(writer, shape_of(checkpoint))
    writer.add_file_type(FILE_TYPES[precision])
    for name, tensor in read(checkpoint).items():
        # The tables of positions and types are added to states and stay in F32.
        kept = "position" in name or "token_type" in name
        add_tensor(writer, name_of(name), np.ascontiguousarray(tensor),
                   "f32" if kept else precision)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
