"""A Llama decoder with exclusive self attention and a position-wise value projection.

Everything else follows Hugging Face's LlamaForCausalLM (RMSNorm, rotate-half
RoPE, SwiGLU, grouped-query attention, no biases, tied head), and so do the
tensor names of a saved model.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn


def make_config(xsa: bool = True, position_wise: bool = True) -> dict:
    layers, positions = 4, 256
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 258,
        "hidden_size": 160,
        "intermediate_size": 512,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": positions,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "torch_dtype": "bfloat16",
        "sluice": {
            "tokenizer": "byte",
            "position_wise": {"projections": {"v": [0] if position_wise else []},
                              "max_positions": positions, "bias": "none"},
            "xsa": {"layers": list(range(layers)) if xsa else [],
                    "form": "norm", "eps": 1e-6, "gate": "none"},
        },
    }


class PositionWiseLinear(nn.Module):
    """out[b,l,e] = sum_d x[b,l,d] W[l,d,e], one matrix per position."""

    def __init__(self, positions: int, d_in: int, d_out: int):
        super().__init__()
        self.position_weight = nn.Parameter(torch.empty(positions, d_in, d_out))

    def forward(self, x):
        return position_wise(x, self.position_weight)


def position_wise(x, weight):
    return torch.bmm(x.transpose(0, 1), weight[:x.shape[1]]).transpose(0, 1)


def linear(d_in: int, d_out: int) -> nn.Linear:
    return nn.Linear(d_in, d_out, bias=False)


def rotate_half(x):
    low, high = x.chunk(2, dim=-1)
    return torch.cat([-high, low], dim=-1)


def exclude_self(y, v, eps: float):
    """XSA: z = y - (y.v^) v^ with v of the query's own token; y [b,hq,l,d], v [b,hkv,l,d]."""
    unit = F.normalize(v, dim=-1, eps=eps).unsqueeze(2)
    grouped = y.unflatten(1, (v.shape[1], -1))
    return (grouped - (grouped * unit).sum(-1, keepdim=True) * unit).flatten(1, 2)


class Attention(nn.Module):
    def __init__(self, config: dict, layer: int):
        super().__init__()
        d, self.head_dim = config["hidden_size"], config["head_dim"]
        q_width = config["num_attention_heads"] * self.head_dim
        kv_width = config["num_key_value_heads"] * self.head_dim
        position_wise, xsa = config["sluice"]["position_wise"], config["sluice"]["xsa"]
        self.q_proj = linear(d, q_width)
        self.k_proj = linear(d, kv_width)
        if layer in position_wise["projections"].get("v", []):
            self.v_proj = PositionWiseLinear(position_wise["max_positions"], d, kv_width)
        else:
            self.v_proj = linear(d, kv_width)
        self.o_proj = linear(q_width, d)
        self.xsa_eps = xsa["eps"] if layer in xsa["layers"] else None

    def forward(self, x, cos, sin):
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        if self.xsa_eps is not None:
            y = exclude_self(y, v, self.xsa_eps)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        d, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = linear(d, inner)
        self.up_proj = linear(d, inner)
        self.down_proj = linear(inner, d)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: dict, layer: int):
        super().__init__()
        d, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = nn.RMSNorm(d, eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = nn.RMSNorm(d, eps)
        self.mlp = MLP(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], config["rms_norm_eps"])


class DemoModel(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        half = torch.arange(0, config["head_dim"], 2) / config["head_dim"]
        angles = torch.outer(torch.arange(config["max_position_embeddings"]).float(),
                             config["rope_theta"] ** -half)
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        """tokens [b,l] from position 0; logits [b,l,vocab]"""
        length = tokens.shape[1]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.model.norm(x) @ self.model.embed_tokens.weight.T


def save(model: nn.Module, folder: Path) -> None:
    """In bf16. The model may hold a parameter of DemoModel as a computed attribute."""
    tensors = {}
    for name in DemoModel(model.config).state_dict():
        owner, _, leaf = name.rpartition(".")
        tensor = getattr(model.get_submodule(owner), leaf)
        tensors[name] = tensor.detach().to(torch.bfloat16).contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config, indent=2) + "\n")


def load(folder: Path) -> DemoModel:
    """The saved model, its bf16 weights widened to f32."""
    model = DemoModel(json.loads((folder / "config.json").read_text()))
    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model.eval()
