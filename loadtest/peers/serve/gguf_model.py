"""Converts the checkpoint to llama.cpp's format, in F32 or with quantised matrices."""

import pathlib
import re
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checkpoint import EOS, Shape, read  # noqa: E402

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_of(name: str) -> str:
    """Returns the name in this format: `model.layers.3.mlp.up_proj.weight` becomes
    `blk.3.ffn_up.weight`.
    """
    stem = name.removesuffix(".weight")
    if stem in OTHER_NAMES:
        return f"{OTHER_NAMES[stem]}.weight"
    number, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{LAYER_NAMES[part]}.weight"


def interleaved(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Returns the matrix with the rotary pairs (i, i + half) of each head adjacent, as this format
    requires.
    """
    halves = matrix.reshape(heads, 2, -1, matrix.shape[1])
    return halves.swapaxes(1, 2).reshape(matrix.shape)


def describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_vocab_size(shape.vocab)
    if shape.experts:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.intermediate)


def stacked(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the tensors with the matrices of a layer's experts as one tensor [experts, n, k]."""
    made: dict[str, list[np.ndarray]] = {}
    for name, tensor in tensors.items():
        made.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.", name), []).append(tensor)
    return {name: np.stack(each) if ".experts." in name else each[0]
            for name, each in made.items()}


def tokens_of(text: str) -> list[int]:
    """Returns the token ids of an answer. The text of a token is its number."""
    return [int(number) for number in re.findall(r"<(\d+)>", text)]


BYTES = 258  # The vocabulary of a model whose tokens are bytes, the start and the end.


def add_bytes(writer: gguf.GGUFWriter) -> None:
    kinds = gguf.TokenType
    printable = range(ord(" "), ord("~") + 1)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([chr(each).replace(" ", "\u2581") if each in printable else
                           f"<0x{each:02X}>" for each in range(256)] + ["<s>", "</s>"])
    writer.add_token_scores([0.0] * BYTES)
    writer.add_token_types([kinds.NORMAL if each in printable else kinds.BYTE
                            for each in range(256)] + [kinds.CONTROL] * 2)
    writer.add_bos_token_id(BYTES - 2)
    writer.add_eos_token_id(BYTES - 1)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    if size == BYTES:
        add_bytes(writer)
        return
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{number}>" for number in range(size)])
    writer.add_token_scores([-float(number) for number in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)


FILE_TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
              "f16": gguf.LlamaFileType.MOSTLY_F16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
              "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}


def add_tensor(writer: gguf.GGUFWriter, name: str, tensor: np.ndarray, precision: str) -> None:
    """Adds a tensor: a matrix of a product in the given precision, anything else in F32."""
    if precision == "f32" or tensor.ndim < 2 or "ffn_gate_inp" in name:
        writer.add_tensor(name, tensor)
        return
    kind = gguf.GGMLQuantizationType[precision.upper()]
    writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)


def export(checkpoint: pathlib.Path, precision: str = "f32") -> pathlib.Path:
    """Writes the model into the checkpoint's folder if it is missing."""
    path = checkpoint / ("model.gguf" if precision == "f32" else f"model_{precision}.gguf")
    if path.exists():
        return path
    shape, tensors = read(checkpoint)
    writer = gguf.GGUFWriter(path, "qwen3moe" if shape.experts else "llama")
    describe(writer, shape)
    writer.add_file_type(FILE_TYPES[precision])
    add_vocabulary(writer, shape.vocab)
    # Its Llama has other rotary pairs than its Qwen3.
    heads = {} if shape.experts else {"q_proj": shape.heads, "k_proj": shape.kv_heads}
    for name, tensor in stacked(tensors).items():
        rotated = heads.get(name.split(".")[-2])
        add_tensor(writer, name_of(name), interleaved(tensor, rotated) if rotated else tensor,
                   precision)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


if __name__ == "__main__":
    export(pathlib.Path(sys.argv[1]))
