"""Makes a Llama checkpoint with random bf16 weights, for benchmarks."""

import json
import pathlib
import struct

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 9,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def shapes(config):
    """Returns the shape of every tensor by name; matrices are [out, in]."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    layer = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (q, width),
        "self_attn.k_proj": (kv, width),
        "self_attn.v_proj": (kv, width),
        "self_attn.o_proj": (width, q),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    all_shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for index in range(config["num_hidden_layers"]):
        all_shapes |= {
            f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()
        }
    return all_shapes | {
        "model.norm.weight": (width,),
        "lm_head.weight": (config["vocab_size"], width),
    }


def weights(config, seed=1):
    """Yields (name, float32 array). The lower 16 bits are zero, so bf16 represents it exactly."""
    random = np.random.default_rng(seed)
    for name, shape in shapes(config).items():
        if len(shape) == 1:
            values = np.ones(shape, np.float32)
        else:
            values = random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[1]))
        yield name, (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def write(directory, config=None):
    """Writes config.json and model.safetensors to an existing directory."""
    config = config or CONFIG
    header, parts, offset = {}, [], 0
    for name, values in weights(config):
        part = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": values.shape,
            "data_offsets": [offset, offset + len(part)],
        }
        parts.append(part)
        offset += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target = pathlib.Path(directory)
    prefix = struct.pack("<Q", len(text)) + text
    (target / "model.safetensors").write_bytes(prefix + b"".join(parts))
    (target / "config.json").write_text(json.dumps(config, indent=1))
