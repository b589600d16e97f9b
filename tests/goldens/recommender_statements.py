"""Plain PyTorch implementations of two published ranking models: HSTU and RankMixer.

HSTU follows `generative_recommenders` (arXiv 2402.17152) with its tensor names, without time stamp
biases. RankMixer follows the equations of arXiv 2507.15551. `p` maps names to tensors, and x is
[L, d]. Each function returns the residual stream before the first layer and after each layer.
"""

import torch
import torch.nn.functional as F


def hstu(p: dict, h: dict, items: torch.Tensor, targets: int = 0) -> list[torch.Tensor]:
    """Runs HSTU. The last `targets` items are candidates. Each is at the position after the history
    and sees only the history and itself, not the other candidates."""
    length, width = len(items), p["_embedding_module._item_emb.weight"].shape[1]
    history = length - targets
    place = torch.arange(length).clamp(max=history) if targets else torch.arange(length)
    x = (p["_embedding_module._item_emb.weight"][items] * width ** 0.5
         + p["_input_features_preproc._pos_emb.weight"][place])
    seen = torch.ones(length, length).tril().to(x.dtype)
    seen[history:, history:] = torch.eye(targets, dtype=x.dtype)
    states = [x]
    for n in range(h["layers"]):
        layer = f"_hstu._attention_layers.{n}"
        uvqk = F.silu(F.layer_norm(x, [width], eps=h["eps"]) @ p[f"{layer}._uvqk"])
        u, v, q, k = uvqk.chunk(4, dim=-1)
        q, k, v = (t.unflatten(-1, (h["heads"], -1)) for t in (q, k, v))
        weights = F.silu(torch.einsum("nhd,mhd->hnm", q, k)) / h["positions"] * seen
        attended = torch.einsum("hnm,mhd->nhd", weights, v).flatten(1)
        gated = u * F.layer_norm(attended, attended.shape[-1:], eps=h["eps"])
        x = x + F.linear(gated, p[f"{layer}._o.weight"], p[f"{layer}._o.bias"])
        states.append(x)
    return states


def mix_tokens(x: torch.Tensor) -> torch.Tensor:  # [T, d]
    """Splits each token into as many heads as there are tokens; token h is head h of all tokens."""
    tokens = x.shape[0]
    return torch.stack([torch.cat([token.chunk(tokens)[head] for token in x])
                        for head in range(tokens)])


def rank_mixer(p: dict, h: dict, x: torch.Tensor) -> list[torch.Tensor]:
    """Runs RankMixer on feature tokens [T, d]."""
    def norm(name, y):
        return F.layer_norm(y, y.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], h["eps"])

    def of_each_token(name, y):
        return (torch.einsum("ld,lde->le", y, p[f"{name}.position_weight"])
                + p[f"{name}.position_bias"])

    states = [x]
    for n in range(h["layers"]):
        layer = f"model.layers.{n}"
        x = norm(f"{layer}.mixing_norm", mix_tokens(x) + x)
        inner = h["activation"](of_each_token(f"{layer}.ffn.up", x))
        x = norm(f"{layer}.ffn_norm", of_each_token(f"{layer}.ffn.down", inner) + x)
        states.append(x)
    return states
