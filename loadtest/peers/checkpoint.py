"""Makes a checkpoint of a Llama or a Qwen3-MoE with random weights, the same bytes for the same
seed.

No answer ends early: the head's row of the end token is zero, so that its logit is never the
largest and every server generates the requested number of tokens.
"""

import json
import pathlib
from dataclasses import asdict, dataclass

import numpy as np
from safetensors.numpy import load_file, save_file

EOS = 2


@dataclass(frozen=True)
class Shape:
    vocab: int = 32000
    hidden: int = 512
    intermediate: int = 1408
    layers: int = 9
    heads: int = 8
    kv_heads: int = 2
    positions: int = 320
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    dtype: str = "float32"  # or bfloat16; the type in which the weights are stored
    experts: int = 0  # of a Qwen3-MoE, each `intermediate` wide; 0: a Llama
    chosen: int = 0  # experts of a token

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def config(self) -> dict:
        config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": self.vocab,
            "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "hidden_act": "silu",
            "max_position_embeddings": self.positions, "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta, "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": EOS,
            "torch_dtype": self.dtype,
        }
        if self.experts:
            del config["mlp_bias"]
            config |= {
                "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                "moe_intermediate_size": self.intermediate, "num_experts": self.experts,
                "num_experts_per_tok": self.chosen, "norm_topk_prob": True,
                "decoder_sparse_step": 1, "mlp_only_layers": [],
            }
        return config


def tensors_of(shape: Shape, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        drawn = random.standard_normal((rows, columns), np.float32)
        return drawn / np.float32(np.sqrt(columns))

    def norm(width: int = shape.hidden) -> np.ndarray:
        return 1 + np.float32(0.1) * random.standard_normal(width, np.float32)

    def mlp(prefix: str) -> dict[str, np.ndarray]:
        return {prefix + "gate_proj.weight": matrix(shape.intermediate, shape.hidden),
                prefix + "up_proj.weight": matrix(shape.intermediate, shape.hidden),
                prefix + "down_proj.weight": matrix(shape.hidden, shape.intermediate)}

    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    tensors = {"model.embed_tokens.weight": matrix(shape.vocab, shape.hidden)}
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": norm(),
            prefix + "self_attn.q_proj.weight": matrix(queries, shape.hidden),
            prefix + "self_attn.k_proj.weight": matrix(keys, shape.hidden),
            prefix + "self_attn.v_proj.weight": matrix(keys, shape.hidden),
            prefix + "self_attn.o_proj.weight": matrix(shape.hidden, queries),
            prefix + "post_attention_layernorm.weight": norm(),
        }
        if not shape.experts:
            tensors |= mlp(prefix + "mlp.")
            continue
        tensors |= {prefix + "self_attn.q_norm.weight": norm(shape.head_dim),
                    prefix + "self_attn.k_norm.weight": norm(shape.head_dim),
                    prefix + "mlp.gate.weight": matrix(shape.experts, shape.hidden)}
        for expert in range(shape.experts):
            tensors |= mlp(f"{prefix}mlp.experts.{expert}.")
    tensors["model.norm.weight"] = norm()
    tensors["lm_head.weight"] = 4 * matrix(shape.vocab, shape.hidden)
    tensors["lm_head.weight"][EOS] = 0
    return tensors


def _recipe(shape: Shape, seed: int) -> str:
    return json.dumps(asdict(shape) | {"seed": seed})


def save(directory: pathlib.Path, shape: Shape, seed: int, tensors: dict[str, np.ndarray],
         **config) -> None:
    """Writes a checkpoint of these tensors, with `config` added to the shape's config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    if shape.dtype == "bfloat16":
        import ml_dtypes  # some environments of peers lack it
        tensors = {name: each.astype(ml_dtypes.bfloat16) for name, each in tensors.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(shape.config() | config, indent=1) + "\n")
    (directory / "recipe.json").write_text(_recipe(shape, seed))


def write(directory: pathlib.Path, shape: Shape, seed: int) -> None:
    """Writes the checkpoint, unless `directory` already has the same one."""
    mark = directory / "recipe.json"
    if not mark.exists() or mark.read_text() != _recipe(shape, seed):
        save(directory, shape, seed, tensors_of(shape, seed))


def read(directory: pathlib.Path) -> tuple[Shape, dict[str, np.ndarray]]:
    """Returns the shape, and the tensors in f32."""
    recipe = json.loads((directory / "recipe.json").read_text())
    del recipe["seed"]
    if recipe.get("dtype") == "bfloat16":
        import ml_dtypes  # noqa: F401, registers bfloat16 with numpy
    return Shape(**recipe), {name: tensor.astype(np.float32) for name, tensor in
                             load_file(directory / "model.safetensors").items()}
