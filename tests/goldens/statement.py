"""A plain PyTorch implementation of the model: Llama with position-wise projections and XSA.

`c` is the parsed config.json in the form of published checkpoints. `w` maps tensor names to tensors
of one floating-point type, which all computations use.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

DIAGNOSTIC_EPS = 1e-6  # For cos_sim and proj_frac; independent of the eps of the XSA form.


def head_dim(c: dict) -> int:
    return c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])


def kv_heads(c: dict) -> int:
    return c.get("num_key_value_heads", c["num_attention_heads"])


def project(w: dict, name: str, x: torch.Tensor) -> torch.Tensor:  # x [B,L,D]
    length = x.shape[1]
    if f"{name}.position_weight" in w:
        out = torch.einsum("bld,lde->ble", x, w[f"{name}.position_weight"][:length])
    else:
        out = x @ w[f"{name}.weight"].T
    if f"{name}.position_bias" in w:
        out = out + w[f"{name}.position_bias"][:length]
    if f"{name}.bias" in w:
        out = out + w[f"{name}.bias"]
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def inverse_frequencies(dim: int, theta: float, scaling: dict | None) -> np.ndarray:
    inverse = theta ** -(np.arange(0, dim, 2) / dim)
    if scaling:
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] * inverse / (2 * math.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)  # 1 keeps it, 0 divides it by factor.
        inverse = inverse * (kept + (1 - kept) / scaling["factor"])
    return inverse


def rotate(x: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:  # x [B,L,H,D]
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * inverse.to(x.dtype)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def exclude_self(y, v, form: str, eps: float, gate):  # y [B,L,H,D], v repeated to match, gate [H]
    """XSA: removes from each head's output its component along the value at the same position."""
    dot = (y * v).sum(-1, keepdim=True)
    norm = v.norm(dim=-1, keepdim=True)
    divisor = norm.clamp(min=eps).square() if form == "norm" else norm.square().clamp(min=eps)
    z = y - gate[:, None] * dot / divisor * v
    cos_sim = (dot.abs() / norm.clamp(min=DIAGNOSTIC_EPS))[..., 0]
    return z, cos_sim, cos_sim / y.norm(dim=-1).clamp(min=DIAGNOSTIC_EPS)


def statement(c: dict, w: dict, ids: torch.Tensor):
    """Runs the model on ids [L].

    Returns logits [L,V], cos_sim [layers,L,H] and proj_frac [layers,L,H], with 0 in layers without
    XSA.
    """
    length, heads = len(ids), c["num_attention_heads"]
    exclusive = c.get("sluice", {}).get("xsa", {"layers": []})
    inverse = torch.from_numpy(inverse_frequencies(
        head_dim(c), c.get("rope_theta", 10000.0), c.get("rope_scaling")))
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    x = w["model.embed_tokens.weight"][ids][None]
    cos_sim, proj_frac = x.new_zeros(2, c["num_hidden_layers"], length, heads)
    for n in range(c["num_hidden_layers"]):
        layer, attention = f"model.layers.{n}", f"model.layers.{n}.self_attn"
        h = rms_norm(x, w[f"{layer}.input_layernorm.weight"], c["rms_norm_eps"])
        q, k, v = (project(w, f"{attention}.{p}_proj", h).unflatten(-1, (-1, head_dim(c)))
                   for p in "qkv")
        k, v = (t.repeat_interleave(heads // kv_heads(c), dim=2) for t in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", rotate(q, inverse), rotate(k, inverse))
        scores = (scores / math.sqrt(head_dim(c))).masked_fill(future, -math.inf)
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        if n in exclusive["layers"]:
            alpha = w.get(f"{attention}.xsa_alpha")
            gate = x.new_ones(heads) if alpha is None else alpha.tanh()
            y, *diagnostics = exclude_self(y, v, exclusive["form"], exclusive["eps"], gate)
            cos_sim[n], proj_frac[n] = (d[0] for d in diagnostics)
        x = x + project(w, f"{attention}.o_proj", y.flatten(2))
        h = rms_norm(x, w[f"{layer}.post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate, up = (project(w, f"{layer}.mlp.{p}_proj", h) for p in ("gate", "up"))
        x = x + project(w, f"{layer}.mlp.down_proj", F.silu(gate) * up)
    x = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return (x @ head.T)[0], cos_sim, proj_frac
