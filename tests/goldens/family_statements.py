"""Plain PyTorch implementations of published models: SASRec and XSA language models.

Each follows its authors (SASRec: Kang and McAuley, arXiv 1808.09781; XSA: arXiv 2603.09078, in the
small language models of the parameter golf), not the format of the daemon's config. `p` maps the
model's own names to tensors, and x is [L, d]. Each function returns the state after the last norm
and the logits.
"""

import math

import torch
import torch.nn.functional as F


def layer_norm(p: dict, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], eps)


def linear(p: dict, name: str, x: torch.Tensor, window=None) -> torch.Tensor:
    """Applies a linear layer. If it has a matrix per position, `window` has the row positions."""
    weight, bias = p[f"{name}.weight"], p.get(f"{name}.bias")
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    out = torch.einsum("ld,lde->le", x, weight[window])
    return out if bias is None else out + (bias if bias.dim() == 1 else bias[window])


def attend(q, k, v, causal: bool) -> torch.Tensor:  # [L, H, D] each
    out = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)),
                                         is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return out[0].transpose(0, 1)


def sasrec(p: dict, h: dict, items: torch.Tensor, window: torch.Tensor):
    """Runs SASRec on items at the positions `window`. Position i uses row i + 1 of the table."""
    table = p["item_emb.weight"]
    x = table[items] * table.shape[1] ** 0.5 + p["pos_emb.weight"][window + 1]
    for n in range(h["layers"]):
        query = layer_norm(p, f"attention_layernorms.{n}", x, h["eps"])
        q, k, v = (linear(p, f"attention_layers.{n}.{name}", y).unflatten(-1, (h["heads"], -1))
                   for name, y in (("q", query), ("k", x), ("v", x)))
        x = query + linear(p, f"attention_layers.{n}.out", attend(q, k, v, True).flatten(1))
        x = layer_norm(p, f"forward_layernorms.{n}", x, h["eps"])
        inner = h["activation"](linear(p, f"forward_layers.{n}.conv1", x, window))
        x = x + linear(p, f"forward_layers.{n}.conv2", inner, window)
    x = layer_norm(p, "last_layernorm", x, h["eps"])
    return x, x @ table.T


def series_encoder(p: dict, h: dict, rows: torch.Tensor, window: torch.Tensor):
    """Encodes feature vectors: an adapter, then blocks with attention parallel to the MLP."""
    x = linear(p, "adapter", rows, window)
    for n in range(h["layers"]):
        y = layer_norm(p, f"blocks.{n}.norm", x, h["eps"])
        q, k, v = (linear(p, f"blocks.{n}.{name}", y).unflatten(-1, (h["heads"], -1))
                   for name in "qkv")
        x = (x + linear(p, f"blocks.{n}.o", attend(q, k, v, False).flatten(1))
             + linear(p, f"blocks.{n}.down", F.gelu(linear(p, f"blocks.{n}.up", y))))
    x = layer_norm(p, "norm", x, h["eps"])
    return x, linear(p, "head", x)


def turn(x: torch.Tensor, dims: int, base: float) -> torch.Tensor:  # [L, H, D]
    """Applies partial rotary positions, which rotate in the direction of the speed-run models."""
    frequencies = base ** -(torch.arange(0, dims, 2, dtype=x.dtype) / dims)
    angle = torch.arange(x.shape[0], dtype=x.dtype)[:, None] * frequencies
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    turned, rest = x[..., :dims], x[..., dims:]
    first, second = turned.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, second * cos - first * sin, rest), dim=-1)


def exclude_self(y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:  # [L, H, D], [L, Hkv, D]
    unit = F.normalize(v, dim=-1, eps=1e-12).repeat_interleave(y.shape[1] // v.shape[1], dim=1)
    return y - (y * unit).sum(-1, keepdim=True) * unit


def xsa_lm(p: dict, h: dict, tokens: torch.Tensor):
    def rms(x, eps=None):
        return F.rms_norm(x, x.shape[-1:], eps=eps)

    x = x0 = rms(p["tok_emb.weight"][tokens])
    skips, first_half = [], h["layers"] // 2
    for n in range(h["layers"]):
        if skips and n >= first_half:
            x = x + p["skip_weights"][n - first_half] * skips.pop()
        block = f"blocks.{n}"
        mix = p[f"{block}.resid_mix"]
        x = mix[0] * x + mix[1] * x0
        depth = 1 / math.sqrt(n + 1)
        y = rms(x) * depth
        q, k, v = (linear(p, f"{block}.attn.c_{name}", y).unflatten(-1, (-1, h["head_dim"]))
                   for name in "qkv")
        q, k = (turn(rms(t), h["rope_dims"], h["base"]) for t in (q, k))
        y = attend(q * p[f"{block}.attn.q_gain"][:, None], k, v, True)
        if n >= h["layers"] - h["xsa_last"]:
            y = exclude_self(y, v)
        x = x + p[f"{block}.attn_scale"] * linear(p, f"{block}.attn.proj", y.flatten(1))
        inner = F.relu(linear(p, f"{block}.mlp.fc", rms(x) * depth)).square()
        x = x + p[f"{block}.mlp_scale"] * linear(p, f"{block}.mlp.proj", inner)
        if n < first_half:
            skips.append(x)
    x = rms(x)
    logits = F.linear(x, p["tok_emb.weight"])
    return x, h["soft_cap"] * torch.tanh(logits / h["soft_cap"])
