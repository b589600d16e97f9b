"""Makes the golden data in this folder: tiny models with their expected outputs, and op cases.

Every model is drawn from the fixed seed in MODELS. The expected values of plain Llama checkpoints
come from Hugging Face, in float32 with eager attention. The expected values of models with Sluice's
extensions come from statement.py, a plain PyTorch implementation of the model. The script first
checks that it agrees with Hugging Face on every plain checkpoint. The op cases come from NumPy in
float64 (op_cases.py). The daemon's tests read the committed files and never run this script.
"""

import argparse
import json
import math
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from op_cases import op_cases
from statement import head_dim, kv_heads, statement

GREEDY_STEPS = 8
GREEDY_MARGIN = 0.02  # Between the two largest logits, so that rounding changes no token.
OPS_SEED = 7

BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64,
    "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
    "max_position_embeddings": 33, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2,
}
# With heads of 16 or 8, one frequency is interpolated and the others are divided.
LLAMA3_ROPE = {"rope_theta": 500000.0, "rope_scaling": {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16}}


def xsa(layers: list, form: str, eps: float, gate: str) -> dict:
    return {"layers": layers, "form": form, "eps": eps, "gate": gate}


def position_wise(projections: dict, max_positions: int, bias: str) -> dict:
    return {"projections": projections, "max_positions": max_positions, "bias": bias}


@dataclass(frozen=True)
class Model:
    name: str
    seed: int
    config: dict = field(default_factory=dict)  # The differences from BASE. None drops a key.
    dtype: torch.dtype = torch.float32
    shards: int = 1
    new_config: bool = False  # Whether transformers writes config.json.

    def classic_config(self) -> dict:
        """Returns config.json in the form of published checkpoints."""
        merged = BASE | self.config | {"torch_dtype": str(self.dtype).removeprefix("torch.")}
        return {key: value for key, value in merged.items() if value is not None}


MODELS = [
    # Like the first Llama checkpoints, it uses the defaults of grouped heads, theta and biases.
    Model("llama_mha", 105, {"num_key_value_heads": None, "rope_theta": None,
                             "attention_bias": None, "mlp_bias": None}),
    Model("llama_gqa", 205),
    Model("llama_mqa", 305, {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    Model("llama_headdim", 404, {"head_dim": 12}),
    Model("llama_bias", 513, {"attention_bias": True, "mlp_bias": True}),
    Model("llama_rope3", 611, LLAMA3_ROPE | {"num_attention_heads": 2, "num_key_value_heads": 1}),
    Model("llama_bf16", 706, dtype=torch.bfloat16),
    Model("llama_f16", 806, dtype=torch.float16),
    Model("llama_sharded", 922, dtype=torch.bfloat16, shards=3),
    Model("llama_newconfig", 1009,
          LLAMA3_ROPE | {"num_attention_heads": 2, "num_key_value_heads": 1},
          torch.bfloat16, new_config=True),
    Model("sluice_pw_v", 1102, {"num_key_value_heads": 1, "sluice": {
        "position_wise": position_wise({"v": [0, 1]}, 33, "none")}}),
    # Here and in sluice_all, max_positions is below max_position_embeddings and limits a sequence.
    Model("sluice_pw_qkvo", 1208, {
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "sluice": {
            "position_wise": position_wise({"q": [1], "k": [0], "v": [0, 1], "o": [0]}, 16, "e")}}),
    Model("sluice_xsa", 1303, {"num_hidden_layers": 3, "sluice": {
        "xsa": xsa([0, 2], "norm", 1e-6, "none")}}),
    Model("sluice_xsa_squared_gate", 1401, {"sluice": {
        "xsa": xsa([0, 1], "squared", 1e-8, "tanh")}}),
    Model("sluice_all", 1502, LLAMA3_ROPE | {"attention_bias": True, "mlp_bias": True, "sluice": {
        "position_wise": position_wise({"q": [0], "k": [1], "v": [1], "o": [1]}, 18, "le"),
        "xsa": xsa([0, 1], "norm", 1e-6, "tanh")}}, torch.bfloat16),
]


def max_length(c: dict) -> int:
    bound = c.get("sluice", {}).get("position_wise", {}).get("max_positions", math.inf)
    return min(bound, c["max_position_embeddings"])


def tensor_shapes(c: dict) -> dict:
    hidden, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    q_width, kv_width = c["num_attention_heads"] * head_dim(c), kv_heads(c) * head_dim(c)
    pw, exclusive = (c.get("sluice", {}).get(key, {}) for key in ("position_wise", "xsa"))
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for n in range(c["num_hidden_layers"]):
        layer, attention = f"model.layers.{n}", f"model.layers.{n}.self_attn"
        shapes[f"{layer}.input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
        for p, d_in, d_out in (("q", hidden, q_width), ("k", hidden, kv_width),
                               ("v", hidden, kv_width), ("o", q_width, hidden)):
            name = f"{attention}.{p}_proj"
            if n in pw.get("projections", {}).get(p, []):
                shapes[f"{name}.position_weight"] = (pw["max_positions"], d_in, d_out)
                if pw["bias"] == "e":
                    shapes[f"{name}.bias"] = (d_out,)
                elif pw["bias"] == "le":
                    shapes[f"{name}.position_bias"] = (pw["max_positions"], d_out)
            else:
                shapes[f"{name}.weight"] = (d_out, d_in)
                if c.get("attention_bias"):
                    shapes[f"{name}.bias"] = (d_out,)
        for p, d_in, d_out in (("gate", hidden, inner), ("up", hidden, inner),
                               ("down", inner, hidden)):
            shapes[f"{layer}.mlp.{p}_proj.weight"] = (d_out, d_in)
            if c.get("mlp_bias"):
                shapes[f"{layer}.mlp.{p}_proj.bias"] = (d_out,)
        if n in exclusive.get("layers", []) and exclusive["gate"] == "tanh":
            shapes[f"{attention}.xsa_alpha"] = (c["num_attention_heads"],)
    return shapes


def draw_weights(c: dict, seed: int, dtype: torch.dtype) -> dict:
    """Draws weights for a standard deviation of about 1 in logits and 2 in attention scores."""
    rng = np.random.default_rng(seed)

    def draw(name: str, shape: tuple) -> torch.Tensor:
        noise = torch.from_numpy(rng.standard_normal(shape))
        if name.endswith("norm.weight"):
            return 1 + 0.2 * noise
        if name.endswith("xsa_alpha"):
            return noise
        return (0.25 if name.endswith(("_proj.weight", "position_weight")) else 0.2) * noise

    return {name: draw(name, shape).to(dtype) for name, shape in tensor_shapes(c).items()}


def write_checkpoint(path: Path, config: dict, weights: dict, shards: int) -> None:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if shards == 1:
        save_file(weights, path / "model.safetensors", {"format": "pt"})
        return
    names, weight_map = sorted(weights), {}
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        # The stride separates the tensors of a layer, so a loader must follow the index.
        part = {name: weights[name] for name in names[i::shards]}
        save_file(part, path / shard, {"format": "pt"})
        weight_map |= dict.fromkeys(part, shard)
    index = {"metadata": {"total_size": sum(t.nbytes for t in weights.values())},
             "weight_map": dict(sorted(weight_map.items()))}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_model(path: Path, model: Model) -> None:
    config = model.classic_config()
    weights = draw_weights(config, model.seed, model.dtype)
    if not model.new_config:
        return write_checkpoint(path, config, weights, model.shards)
    with tempfile.TemporaryDirectory() as scratch:
        classic = Path(scratch) / "classic"
        write_checkpoint(classic, config, weights, model.shards)
        LlamaForCausalLM.from_pretrained(classic, dtype="auto").save_pretrained(path)


def read_weights(path: Path, dtype: torch.dtype) -> dict:
    files = sorted(path.glob("model*.safetensors"))
    return {name: t.to(dtype) for file in files for name, t in load_file(file).items()}


def generate(logits_of, ids: torch.Tensor, steps: int):
    """Returns greedy tokens and the smallest margin of a choice."""
    margins = []
    for _ in range(steps):
        best = logits_of(ids)[-1].topk(2)
        margins.append((best.values[0] - best.values[1]).item())
        ids = torch.cat((ids, best.indices[:1]))
    return ids[-steps:], min(margins)


def check_extensions_matter(c: dict, w: dict, ids: torch.Tensor, logits: torch.Tensor) -> None:
    """Checks that each extension changes the logits; otherwise no test would cover it."""
    def differs(config: dict, weights: dict) -> bool:
        return (statement(config, weights, ids)[0] - logits).abs().max() > 0.05

    if "rope_scaling" in c:
        assert differs(c | {"rope_scaling": None}, w)
    for n in c.get("sluice", {}).get("xsa", {"layers": []})["layers"]:
        others = [layer for layer in c["sluice"]["xsa"]["layers"] if layer != n]
        assert differs(c | {"sluice": {"xsa": c["sluice"]["xsa"] | {"layers": others}}}, w)
    for name, tensor in w.items():
        if "position_" in name or name.endswith(("bias", "xsa_alpha")):
            assert differs(c, w | {name: tensor.roll(1, dims=0)}), name


def write_expected(path: Path, model: Model) -> str:
    c = model.classic_config()
    w = read_weights(path, torch.float32)
    longest = max_length(c)
    lengths = [n for n in (1, 2, 7, 16, 33) if n < longest] + [longest]
    rng = np.random.default_rng(model.seed)
    sequences = [torch.from_numpy(rng.integers(0, c["vocab_size"], n)) for n in lengths]

    stated = [statement(c, w, ids) for ids in sequences]
    if "sluice" in c:
        def logits_of(ids):
            return statement(c, w, ids)[0]
    else:
        reference = LlamaForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager").eval()

        def logits_of(ids):
            return reference(ids[None], use_cache=False).logits[0]
    logits = [logits_of(ids) for ids in sequences]
    off_reference = max((a[0] - b).abs().max().item() for a, b in zip(stated, logits))
    assert off_reference < 1e-5, f"{model.name}: the statement is {off_reference} off"
    double = read_weights(path, torch.float64)
    rounding = max((statement(c, double, ids)[0] - b).abs().max().item()
                   for ids, b in zip(sequences, logits))
    assert rounding < 2e-5, f"{model.name}: ill-conditioned, float32 is {rounding} off"
    check_extensions_matter(c, w, sequences[-1], logits[-1])

    log_probs = []
    for ids, rows in zip(sequences, logits):
        row_log_probs = rows[:-1].double().log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        log_probs.append(F.pad(row_log_probs, (1, 0)).float())

    greedy, margin = torch.full((len(lengths), GREEDY_STEPS), -1), math.inf
    for row, ids in zip(greedy, sequences):
        if len(ids) + GREEDY_STEPS <= longest:
            row[:], smallest = generate(logits_of, ids, GREEDY_STEPS)
            margin = min(margin, smallest)
    # A row that repeats one token would hide a wrong position. A row with the end token would
    # depend on whether a reader stops there.
    varied = all(len(row.unique()) >= 3 for row in greedy if -1 not in row)
    assert margin > GREEDY_MARGIN and varied and c["eos_token_id"] not in greedy, \
        f"{model.name}: greedy rows unfit, margin {margin:.3f}; take another seed"

    expected = {
        "lengths": torch.tensor(lengths, dtype=torch.int32),
        "input_ids": torch.cat(sequences).int(), "logits": torch.cat(logits),
        "prompt_logprobs": torch.cat(log_probs), "greedy": greedy.int(),
    }
    if "xsa" in c.get("sluice", {}):
        expected["xsa_cos_sim"] = torch.cat([s[1] for s in stated], dim=1)
        expected["xsa_proj_frac"] = torch.cat([s[2] for s in stated], dim=1)
    save_file(expected, path / "expected.safetensors")
    return (f"logit std {torch.cat(logits).std():.2f}  margin {margin:.3f}  "
            f"off reference {off_reference:.0e}  float32 rounding {rounding:.0e}")


def write_ops(file: Path) -> None:
    tensors = {}
    for name, case in op_cases(OPS_SEED).items():
        for tensor, value in case.items():
            array = np.atleast_1d(np.asarray(value))
            keep = array.dtype if array.dtype == np.int32 else np.float32
            tensors[f"{name}.{tensor}"] = np.ascontiguousarray(array, dtype=keep)
            assert np.isfinite(tensors[f"{name}.{tensor}"]).all(), name
    save_arrays(tensors, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent,
                        help="folder to write to; its model folders of the same names are replaced "
                             "(default: this script's folder)")
    out = parser.parse_args().out
    torch.set_num_threads(1)  # More threads would change the order of sums.
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"numpy {np.__version__}")
    for model in MODELS:
        path = out / model.name
        shutil.rmtree(path, ignore_errors=True)
        write_model(path, model)
        print(f"{model.name:24} seed {model.seed:4}  {write_expected(path, model)}", flush=True)
    write_ops(out / "ops.safetensors")
    print(f"ops.safetensors{'':9} seed {OPS_SEED:4}")


if __name__ == "__main__":
    main()
