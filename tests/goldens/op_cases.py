"""Makes op cases. Inputs are exact in float32, and outputs are rounded from float64."""

import math

import numpy as np
import torch

from statement import DIAGNOSTIC_EPS, exclude_self, inverse_frequencies


def single(x) -> np.ndarray:
    """Rounds to float32, so that the output is computed from exactly the saved input."""
    return np.asarray(x).astype(np.float32).astype(np.float64)


def xsa_case(y, v, alpha, form: str, eps: float) -> dict:  # y [T,Hq,D], v [T,Hkv,D]
    out, cos_sim, proj_frac = np.empty_like(y), np.empty(y.shape[:2]), np.empty(y.shape[:2])
    group = y.shape[1] // v.shape[1]
    gates = np.ones(y.shape[1]) if alpha is None else np.tanh(alpha)
    for t, h in np.ndindex(y.shape[:2]):
        own, norm = v[t, h // group], np.linalg.norm(v[t, h // group])
        divisor = max(norm, eps) ** 2 if form == "norm" else max(norm**2, eps)
        out[t, h] = y[t, h] - gates[h] * (y[t, h] @ own) * own / divisor
        cos_sim[t, h] = abs(y[t, h] @ own) / max(norm, DIAGNOSTIC_EPS)
        proj_frac[t, h] = cos_sim[t, h] / max(np.linalg.norm(y[t, h]), DIAGNOSTIC_EPS)
    stated = exclude_self(*(torch.from_numpy(a)[None] for a in (y, v.repeat(group, axis=1))),
                          form, eps, torch.from_numpy(gates))
    for a, b in zip(stated, (out, cos_sim, proj_frac)):
        assert np.abs(a[0].numpy() - b).max() < 1e-12
    case = {"y": y, "v": v, "eps": eps, "out": out, "cos_sim": cos_sim, "proj_frac": proj_frac}
    return case if alpha is None else case | {"alpha": alpha}


def attention_case(q, k, v) -> dict:
    """Causal attention. The rows of q are the last positions of k, at most the whole prompt."""
    out, first = np.empty_like(q), len(k) - len(q)
    group = q.shape[1] // k.shape[1]
    for t, h in np.ndindex(q.shape[:2]):
        seen = slice(0, first + t + 1)
        scores = k[seen, h // group] @ q[t, h] / math.sqrt(q.shape[2])
        p = np.exp(scores - scores.max())
        out[t, h] = p @ v[seen, h // group] / p.sum()
    return {"q": q, "k": k, "v": v, "out": out, "first_position": np.int32(first)}


def rope_case(x, positions, theta: float, scaling: dict | None) -> dict:  # x [T,H,D]
    inverse = inverse_frequencies(x.shape[2], theta, scaling)
    turn = np.exp(1j * positions[:, None, None] * inverse)
    half = x.shape[2] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * turn
    return {"x": x, "positions": positions.astype(np.int32), "theta": theta, "inv_freq": inverse,
            "out": np.concatenate((turned.real, turned.imag), -1)} | (scaling or {})


def position_wise_case(x, w, bias=None) -> dict:  # x [B,L,D], w [L,D,E], bias [E] or [L,E]
    out = np.stack([x[:, position] @ w[position] for position in range(len(w))], axis=1)
    return {"x": x, "w": w, "out": out} if bias is None else \
        {"x": x, "w": w, "bias": bias, "out": out + bias}


def rms_norm_case(x, weight, eps: float) -> dict:
    out = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight
    return {"x": x, "weight": weight, "eps": eps, "out": out}


def silu(x) -> np.ndarray:
    return x / (1 + np.exp(-x))


def op_cases(seed: int) -> dict:
    rng = np.random.default_rng(seed)

    def draw(*shape, scale=1.0) -> np.ndarray:
        return single(scale * rng.standard_normal(shape))

    cases = {"rms_norm.plain": rms_norm_case(draw(5, 32), single(1 + draw(32, scale=0.25)), 1e-5),
             "rms_norm.odd_width": rms_norm_case(draw(3, 37), draw(37), 1e-6)}
    small = draw(4, 32, scale=1e-3)  # Here eps dominates.
    small[1] = 0
    cases["rms_norm.small"] = rms_norm_case(small, draw(32), 1e-5)

    # All three kinds of frequencies occur: kept, interpolated and divided.
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
    positions = np.array([0, 1, 2, 17, 63, 200])
    cases["rope.plain"] = rope_case(draw(6, 2, 16), positions, 10000.0, None)
    cases["rope.llama3"] = rope_case(draw(6, 2, 32), positions, 500000.0, scaling)

    x, w = draw(3, 5, 12), draw(5, 12, 10, scale=0.3)
    cases["position_wise.no_bias"] = position_wise_case(x, w)
    cases["position_wise.bias_e"] = position_wise_case(x, w, draw(10))
    cases["position_wise.bias_le"] = position_wise_case(x, w, draw(5, 10))
    cases["position_wise.odd_sizes"] = position_wise_case(
        draw(2, 3, 19), draw(3, 19, 21), draw(3, 21))
    cases["position_wise.single"] = position_wise_case(draw(1, 1, 8), draw(1, 8, 8))

    y, v, alpha = draw(8, 4, 12), draw(8, 2, 12), draw(4)
    y[0] = v[0].repeat(2, axis=0)  # Like position 0, where a token attends only to itself.
    v[1] = 0
    y[2] = -2 * v[2].repeat(2, axis=0)
    y[3] = 0
    for form, eps in (("norm", 1e-6), ("squared", 1e-8)):
        cases[f"xsa.{form}"] = xsa_case(y, v, None, form, eps)
        cases[f"xsa.{form}_gate"] = xsa_case(y, v, alpha, form, eps)
    # |v| is below eps, which dominates.
    cases["xsa.norm_small_v"] = xsa_case(y, draw(8, 1, 12, scale=1e-7), None, "norm", 1e-6)
    cases["xsa.squared_small_v"] = xsa_case(y, draw(8, 1, 12, scale=1e-5), None, "squared", 1e-8)

    for name, rows, heads, kv, scale in (
            ("mha", 13, 4, 4, 1), ("gqa", 13, 4, 2, 1), ("mqa", 13, 4, 1, 1),
            ("decode", 1, 4, 2, 1), ("extend", 5, 4, 2, 1), ("large_scores", 13, 4, 2, 50)):
        cases[f"attention.{name}"] = attention_case(
            draw(rows, heads, 8, scale=scale), draw(13, kv, 8), draw(13, kv, 8))

    gate, up = draw(4, 37, scale=3), draw(4, 37)
    cases["swiglu.plain"] = {"gate": gate, "up": up, "out": silu(gate) * up}
    x = np.concatenate(([0, 100, -100, 20, -20], draw(27, scale=3)))
    cases["silu.plain"] = {"x": x, "out": silu(x)}
    x = draw(4, 67, scale=3)
    x[1] += 1e4
    x[2, 5] = 500  # The other exponentials vanish.
    x[3] = 2
    x = single(x)
    shifted = x - x.max(-1, keepdims=True)
    cases["log_softmax.plain"] = {
        "x": x, "out": shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))}
    return cases
