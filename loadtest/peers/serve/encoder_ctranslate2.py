"""Converts the encoder to CTranslate2's format."""

import pathlib
import sys

from ctranslate2.converters import utils
from ctranslate2.specs import common_spec
from ctranslate2.specs.transformer_spec import TransformerEncoderModelSpec, TransformerEncoderSpec

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from encoder import read, shape_of  # noqa: E402


def export(checkpoint: pathlib.Path) -> pathlib.Path:
    """Writes the folder `ctranslate2` next to the checkpoint if it is missing."""
    folder = checkpoint / "ctranslate2"
    if (folder / "model.bin").exists():
        return folder
    shape, tensors = shape_of(checkpoint), read(checkpoint)

    def linear(to: common_spec.LinearSpec, name: str) -> common_spec.LinearSpec:
        to.weight, to.bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return to

    def norm(to, name: str) -> None:
        to.gamma, to.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    encoder = TransformerEncoderSpec(
        shape.layers, shape.heads, pre_norm=False, activation=common_spec.Activation.GELU,
        layernorm_embedding=True, num_source_embeddings=2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD)
    pooler = {"pooling_layer": True,
              "pooling_activation": common_spec.Activation.Tanh} if shape.labels else {}
    encoder.scale_embeddings = False
    for to, table in zip(encoder.embeddings, ("word", "token_type"), strict=True):
        to.weight = tensors[f"embeddings.{table}_embeddings.weight"]
    encoder.position_encodings.encodings = tensors["embeddings.position_embeddings.weight"]
    norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for number, layer in enumerate(encoder.layer):
        prefix = f"encoder.layer.{number}."
        utils.fuse_linear(layer.self_attention.linear[0], [
            linear(common_spec.LinearSpec(), f"{prefix}attention.self.{each}")
            for each in ("query", "key", "value")])
        linear(layer.self_attention.linear[1], f"{prefix}attention.output.dense")
        norm(layer.self_attention.layer_norm, f"{prefix}attention.output.LayerNorm")
        linear(layer.ffn.linear_0, f"{prefix}intermediate.dense")
        linear(layer.ffn.linear_1, f"{prefix}output.dense")
        norm(layer.ffn.layer_norm, f"{prefix}output.LayerNorm")
    spec = TransformerEncoderModelSpec(encoder, **pooler)
    if shape.labels:
        linear(spec.pooler_dense, "pooler.dense")
    spec.register_vocabulary([str(number) for number in range(shape.vocab)])
    spec.config.unk_token, spec.config.layer_norm_epsilon = "0", shape.norm_eps
    spec.validate()
    spec.optimize()
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))
    return folder
