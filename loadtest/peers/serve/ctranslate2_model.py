"""Converts the checkpoint to CTranslate2's format."""

import pathlib
import sys

import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec
from ctranslate2.specs.transformer_spec import TransformerDecoderModelSpec

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checkpoint import EOS, read  # noqa: E402


def token(number: int) -> str:
    """Returns the vocabulary's text of a token; the engine requires one for each."""
    return str(number)


class Decoder:
    """Fills a decoder's specification from the checkpoint's tensors."""

    def __init__(self, tensors: dict[str, np.ndarray]):
        self._tensors = tensors

    def linear(self, to: common_spec.LinearSpec, name: str) -> common_spec.LinearSpec:
        to.weight = self._tensors[f"{name}.weight"]
        return to

    def fill_layer(self, to, prefix: str) -> None:
        attention, ffn = to.self_attention, to.ffn
        attention.layer_norm.gamma = self._tensors[f"{prefix}input_layernorm.weight"]
        ffn.layer_norm.gamma = self._tensors[f"{prefix}post_attention_layernorm.weight"]
        utils.fuse_linear(attention.linear[0],
                          [self.linear(common_spec.LinearSpec(), f"{prefix}self_attn.{each}_proj")
                           for each in "qkv"])
        self.linear(attention.linear[1], f"{prefix}self_attn.o_proj")
        self.linear(ffn.linear_0, f"{prefix}mlp.gate_proj")
        self.linear(ffn.linear_0_noact, f"{prefix}mlp.up_proj")
        self.linear(ffn.linear_1, f"{prefix}mlp.down_proj")

    def fill(self, to) -> None:
        to.scale_embeddings = False
        to.embeddings.weight = self._tensors["model.embed_tokens.weight"]
        to.layer_norm.gamma = self._tensors["model.norm.weight"]
        for number, layer in enumerate(to.layer):
            self.fill_layer(layer, f"model.layers.{number}.")
        self.linear(to.projection, "lm_head")


def export(checkpoint: pathlib.Path) -> pathlib.Path:
    """Writes the folder `ctranslate2` next to the checkpoint if it is missing."""
    folder = checkpoint / "ctranslate2"
    if (folder / "model.bin").exists():
        return folder
    shape, tensors = read(checkpoint)
    spec = TransformerDecoderModelSpec.from_config(
        shape.layers, shape.heads, activation=common_spec.Activation.SWISH, ffn_glu=True,
        rms_norm=True, rotary_dim=0, rotary_interleave=False, rotary_base=shape.rope_theta,
        num_heads_kv=shape.kv_heads)
    Decoder(tensors).fill(spec.decoder)
    spec.register_vocabulary([token(number) for number in range(shape.vocab)])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (
        token(1),
        token(EOS),
        token(0),
    )
    spec.config.layer_norm_epsilon = shape.norm_eps
    spec.validate()
    spec.optimize()
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))
    return folder
