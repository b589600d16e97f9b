"""Makes the golden models gpt2_*, bert_*, qwen2_*, sasrec_*, encoder_* and xsa_lm_* in this folder.

make_transformers.py makes the models of all families, and make_goldens.py llama_* and sluice_*.

GPT-2, BERT and Qwen2 come from Hugging Face in float32 with eager attention. SASRec, an encoder of
feature vectors and the XSA language model come from family_statements.py, and this script renames
their tensors to the daemon's names. Everything is drawn from fixed seeds. The daemon's tests read
the committed files and never run this script.
"""

import argparse
import json
import re
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

import family_statements as statements

LENGTHS = (1, 2, 7, 16)
GREEDY_STEPS = 8
GREEDY_MARGIN = 0.005


def draw(rng, *shape: int, mean: float = 0, scale: float = 0.2) -> torch.Tensor:
    return (mean + scale * torch.from_numpy(rng.standard_normal(shape))).float()


def matrix(rng, *shape: int) -> torch.Tensor:
    return draw(rng, *shape, scale=1.2 / shape[-1] ** 0.5)


class HuggingFace:
    """A transformers model. `spelling` has re.sub arguments for the names of its tensors."""

    window = input_width = None

    def __init__(self, architecture: str, config, spelling=("", "")):
        self.architecture, self.config, self.spelling = architecture, config, spelling
        self.causal = not architecture.startswith("Bert")
        self.vocab, self.longest = config.vocab_size, config.max_position_embeddings

    def write(self, path: Path, rng) -> None:
        self.model = getattr(transformers, self.architecture)._from_config(
            self.config, attn_implementation="eager").eval()
        self.redraw(rng)
        self.model.save_pretrained(path)
        (path / "generation_config.json").unlink(missing_ok=True)
        tensors = load_file(path / "model.safetensors")
        save_file({re.sub(*self.spelling, name): t for name, t in tensors.items()},
                  path / "model.safetensors", {"format": "pt"})

    def redraw(self, rng) -> None:
        """Draws larger weights, because most initial weights are too small to affect the logits."""
        for name, parameter in self.model.named_parameters():
            shape = tuple(parameter.shape)
            if name.endswith("bias"):
                values = draw(rng, *shape)
            elif len(shape) == 1:
                values = draw(rng, *shape, mean=1)
            elif "emb" in name or "wte" in name or "wpe" in name:
                values = draw(rng, *shape, scale=0.5)
            else:
                values = matrix(rng, *shape)
            parameter.data.copy_(values)

    def run(self, ids: torch.Tensor, _window, _rows):
        base = getattr(self.model, self.model.base_model_prefix, self.model)
        state = base(ids[None]).last_hidden_state
        if base is self.model:
            return state[0], None
        if self.architecture == "BertForMaskedLM":  # The head's input.
            state = self.model.cls.predictions.transform(state)
        return state[0], self.model(ids[None]).logits[0]


class Stated:
    """The base class of the models in family_statements.py."""

    causal, window, input_width, dtype = True, None, None, torch.float32

    def write(self, path: Path, rng) -> None:
        stored = {name: t.to(self.dtype) for name, t in self.draw(rng).items()}
        self.p = {name: t.float() for name, t in stored.items()}
        path.mkdir(parents=True)
        config = self.config()
        self.vocab, self.longest = config["vocab_size"], config["max_position_embeddings"]
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file({self.daemon_name(name, t): t for name, t in stored.items()},
                  path / "model.safetensors", {"format": "pt"})

    def daemon_name(self, name: str, tensor: torch.Tensor) -> str:
        for own, daemon in self.NAMES.items():
            name = re.sub(rf"^{own}(?=\.|$)", daemon, name)
        if tensor.dim() == 3:
            name = name.replace(".weight", ".position_weight")
        if tensor.dim() == 2:
            name = name.replace(".bias", ".position_bias")
        return name


def sizes(vocab: int, hidden: int, inner: int, layers: int, heads: int, positions: int,
          sluice: dict, **more) -> dict:
    return {"architectures": ["SluiceForCausalLM"], "vocab_size": vocab, "hidden_size": hidden,
            "intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "max_position_embeddings": positions} | more | {
                "sluice": sluice}


LAYER_NORM = {"kind": "layer", "eps": 1e-8, "weight": True, "bias": True}


class SasRec(Stated):
    NAMES = {"item_emb": "model.embed_tokens", "pos_emb": "model.embed_positions",
             r"attention_layernorms\.(\d+)": r"model.layers.\1.input_layernorm",
             r"attention_layers\.(\d+)\.([qkv])": r"model.layers.\1.self_attn.\2_proj",
             r"attention_layers\.(\d+)\.out": r"model.layers.\1.self_attn.o_proj",
             r"forward_layernorms\.(\d+)": r"model.layers.\1.post_attention_layernorm",
             r"forward_layers\.(\d+)\.conv1": r"model.layers.\1.mlp.up_proj",
             r"forward_layers\.(\d+)\.conv2": r"model.layers.\1.mlp.down_proj",
             "last_layernorm": "model.norm"}

    def __init__(self, width: int, heads: int, layers: int, positions: int, alignment: str,
                 activation: str = "relu", per_position: str = ""):
        self.width, self.positions, self.per_position = width, positions, per_position
        self.activation, self.alignment = activation, alignment
        self.h = {"layers": layers, "heads": heads, "eps": 1e-8,
                  "activation": {"relu": F.relu, "gelu": F.gelu}[activation]}
        self.window = alignment

    def config(self) -> dict:
        h = self.h
        sluice = {"norm": LAYER_NORM | {"order": "query"},
                  "positions": {"kind": "learned", "offset": 1},
                  "mlp": {"activation": self.activation, "gated": False},
                  "biases": {"qkv": True, "o": True, "mlp": True},
                  "embedding_scale": self.width ** 0.5, "position_alignment": self.alignment}
        if self.per_position:
            sluice["position_wise"] = {
                "projections": {"up": [*range(h["layers"])], "down": [0]},
                "max_positions": self.positions, "bias": self.per_position}
        return sizes(61, self.width, self.width, h["layers"], h["heads"], self.positions, sluice,
                     tie_word_embeddings=True)

    def feed_forward(self, rng, layer: int, conv: int) -> dict:
        d, name = self.width, f"forward_layers.{layer}.conv{conv}"
        if not self.per_position or (conv == 2 and layer > 0):
            return {f"{name}.weight": matrix(rng, d, d), f"{name}.bias": draw(rng, d)}
        bias = (self.positions, d) if self.per_position == "le" else (d,)
        return {
            f"{name}.weight": matrix(rng, self.positions, d, d),
            f"{name}.bias": draw(rng, *bias),
        }

    def draw(self, rng) -> dict:
        d = self.width
        p = {
            "item_emb.weight": draw(rng, 61, d),
            "pos_emb.weight": draw(rng, self.positions + 1, d),
        }
        norms = ["last_layernorm"]
        for n in range(self.h["layers"]):
            norms += [f"attention_layernorms.{n}", f"forward_layernorms.{n}"]
            for name in ("q", "k", "v", "out"):
                p[f"attention_layers.{n}.{name}.weight"] = matrix(rng, d, d)
                p[f"attention_layers.{n}.{name}.bias"] = draw(rng, d)
            p |= self.feed_forward(rng, n, 1) | self.feed_forward(rng, n, 2)
        for name in norms:
            p[f"{name}.weight"], p[f"{name}.bias"] = draw(rng, d, mean=1), draw(rng, d)
        return p

    def run(self, ids: torch.Tensor, window: torch.Tensor, _rows):
        return statements.sasrec(self.p, self.h, ids, window)


class SeriesEncoder(Stated):
    NAMES = {"adapter": "model.input_adapter", "norm": "model.norm", "head": "lm_head",
             r"blocks\.(\d+)\.norm": r"model.layers.\1.input_layernorm",
             r"blocks\.(\d+)\.([qkvo])": r"model.layers.\1.self_attn.\2_proj",
             r"blocks\.(\d+)\.(up|down)": r"model.layers.\1.mlp.\2_proj"}
    causal = False

    def __init__(self, input_width: int, adapter: str):
        self.input_width, self.adapter = input_width, adapter
        self.h = {"layers": 2, "heads": 3, "eps": 1e-5}
        self.window = "end" if adapter == "position_wise" else "start"

    def config(self) -> dict:
        dense = self.adapter == "dense"
        sluice = {"norm": LAYER_NORM | {"eps": 1e-5}, "positions": {"kind": "none"},
                  "attention": {"causal": False}, "block": "parallel",
                  "mlp": {"activation": "gelu", "gated": False},
                  "biases": {"qkv": True, "o": True, "mlp": True, "head": True},
                  "input": {"kind": "embeds", "width": self.input_width, "adapter": self.adapter,
                            "bias": dense},
                  "position_alignment": self.window}
        if not dense:
            sluice["position_wise"] = {"max_positions": 16, "bias": "e"}
        return sizes(40, 24, 36, 2, 3, 16, sluice)

    def draw(self, rng) -> dict:
        width = self.input_width
        adapter = (24, width) if self.adapter == "dense" else (16, width, 24)
        p = {"adapter.weight": matrix(rng, *adapter), "adapter.bias": draw(rng, 24),
             "norm.weight": draw(rng, 24, mean=1), "norm.bias": draw(rng, 24),
             "head.weight": matrix(rng, 40, 24), "head.bias": draw(rng, 40)}
        for n in range(2):
            shapes = {name: (24, 24) for name in "qkvo"} | {"up": (36, 24), "down": (24, 36)}
            for name, shape in shapes.items():
                p[f"blocks.{n}.{name}.weight"] = matrix(rng, *shape)
                p[f"blocks.{n}.{name}.bias"] = draw(rng, shape[0])
            p[f"blocks.{n}.norm.weight"] = draw(rng, 24, mean=1)
            p[f"blocks.{n}.norm.bias"] = draw(rng, 24)
        return p

    def run(self, _ids, window: torch.Tensor, rows: torch.Tensor):
        return statements.series_encoder(self.p, self.h, rows, window)


class XsaLm(Stated):
    NAMES = {"tok_emb": "model.embed_tokens", "skip_weights": "model.skip_weights",
             r"blocks\.(\d+)\.resid_mix": r"model.layers.\1.residual_mix",
             r"blocks\.(\d+)\.attn_scale": r"model.layers.\1.attention_scale",
             r"blocks\.(\d+)\.mlp_scale": r"model.layers.\1.mlp_scale",
             r"blocks\.(\d+)\.attn\.q_gain": r"model.layers.\1.self_attn.q_gain",
             r"blocks\.(\d+)\.attn\.c_([qkv])": r"model.layers.\1.self_attn.\2_proj",
             r"blocks\.(\d+)\.attn\.proj": r"model.layers.\1.self_attn.o_proj",
             r"blocks\.(\d+)\.mlp\.fc": r"model.layers.\1.mlp.up_proj",
             r"blocks\.(\d+)\.mlp\.proj": r"model.layers.\1.mlp.down_proj"}

    def __init__(self, layers: int, width: int, heads: int, kv_heads: int, rope_dims: int, dtype):
        self.width, self.heads, self.kv_heads, self.dtype = width, heads, kv_heads, dtype
        self.h = {"layers": layers, "head_dim": width // heads, "rope_dims": rope_dims,
                  "base": 10000.0, "xsa_last": 4 if layers > 4 else 2, "soft_cap": 30.0}

    def config(self) -> dict:
        h, eps = self.h, 1.1920928955078125e-07  # float32's, the default of rms_norm.
        return sizes(
            64, self.width, 2 * self.width, h["layers"], self.heads, 33, {
                "norm": {"kind": "rms", "eps": eps, "weight": False, "embedding": True,
                         "depth_scale": True},
                "positions": {"kind": "rope", "dims": h["rope_dims"], "reversed": True},
                "attention": {"qk_norm": True, "qk_norm_eps": eps, "query_gain": True},
                "mlp": {"activation": "squared_relu", "gated": False},
                "xsa": {"layers": [*range(h["layers"] - h["xsa_last"], h["layers"])],
                        "form": "norm", "eps": 1e-12},
                "branch_scale": True, "residual_mix": True, "skip_weights": True,
                "logit_soft_cap": h["soft_cap"]},
            num_key_value_heads=self.kv_heads, rope_theta=h["base"], tie_word_embeddings=True)

    def draw(self, rng) -> dict:
        d, kv = self.width, self.width // self.heads * self.kv_heads
        layers = self.h["layers"]
        p = {"tok_emb.weight": draw(rng, 64, d, scale=0.5),
             "skip_weights": draw(rng, layers // 2, d, mean=0.7)}
        for n in range(layers):
            block = f"blocks.{n}"
            p |= {f"{block}.resid_mix": draw(rng, 2, d) + torch.tensor([[1.0], [0.2]]),
                  f"{block}.attn_scale": draw(rng, d, mean=0.8),
                  f"{block}.mlp_scale": draw(rng, d, mean=0.5),
                  f"{block}.attn.q_gain": draw(rng, self.heads, mean=1.5),
                  f"{block}.attn.c_q.weight": matrix(rng, d, d),
                  f"{block}.attn.c_k.weight": matrix(rng, kv, d),
                  f"{block}.attn.c_v.weight": matrix(rng, kv, d),
                  f"{block}.attn.proj.weight": matrix(rng, d, d),
                  f"{block}.mlp.fc.weight": matrix(rng, 2 * d, d),
                  f"{block}.mlp.proj.weight": matrix(rng, d, 2 * d)}
        return p

    def run(self, ids: torch.Tensor, _window, _rows):
        return statements.xsa_lm(self.p, self.h, ids)


def gpt2(**sizes_):
    return transformers.GPT2Config(**({"vocab_size": 64, "n_positions": 33, "n_embd": 32,
                                       "n_layer": 2, "n_head": 4, "bos_token_id": 1,
                                       "eos_token_id": 2} | sizes_))


def bert(**sizes_):
    return transformers.BertConfig(**({"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
                                       "num_attention_heads": 4, "intermediate_size": 40,
                                       "max_position_embeddings": 24} | sizes_))


def qwen2(**sizes_):
    return transformers.Qwen2Config(**({
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 33,
        "bos_token_id": 1, "eos_token_id": 2} | sizes_))


MODELS = {
    "gpt2_small": (2101, HuggingFace("GPT2LMHeadModel", gpt2(n_inner=64))),
    # Like the published gpt2: a language model whose tensors lack the prefix "transformer.".
    "gpt2_bare": (2202, HuggingFace(
        "GPT2LMHeadModel", gpt2(n_embd=24, n_layer=3, n_head=2, n_inner=40,
                                activation_function="relu", layer_norm_epsilon=1e-3),
        (r"^transformer\.", ""))),
    "gpt2_headless": (2303, HuggingFace("GPT2Model", gpt2(n_embd=16, n_layer=1, n_head=2))),
    "bert_mlm": (2404, HuggingFace("BertForMaskedLM", bert())),
    # Like early checkpoints: the norms have gamma and beta.
    "bert_gamma": (2505, HuggingFace(
        "BertForMaskedLM", bert(hidden_size=24, num_hidden_layers=3, num_attention_heads=3,
                                hidden_act="gelu_new", type_vocab_size=3),
        (r"LayerNorm\.(weight|bias)$",
         lambda m: "LayerNorm." + {"weight": "gamma", "bias": "beta"}[m[1]]))),
    "bert_headless": (2606, HuggingFace("BertModel", bert(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24))),
    "qwen2_gqa": (2707, HuggingFace("Qwen2ForCausalLM", qwen2())),
    "qwen2_tied": (2808, HuggingFace("Qwen2ForCausalLM", qwen2(
        num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        tie_word_embeddings=True))),
    "sasrec_start": (2909, SasRec(24, 2, 2, 24, "start")),
    "sasrec_end": (3010, SasRec(22, 1, 2, 20, "end")),
    "sasrec_per_position": (3111, SasRec(16, 2, 2, 16, "end", "gelu", "le")),
    "encoder_dense_input": (3212, SeriesEncoder(10, "dense")),
    "encoder_position_input": (3313, SeriesEncoder(7, "position_wise")),
    "xsa_lm_small": (3414, XsaLm(4, 24, 2, 1, 8, torch.float32)),
    "xsa_lm_deep": (3515, XsaLm(11, 24, 4, 2, 2, torch.bfloat16)),
}


def greedy_tokens(model, ids: torch.Tensor):
    """Returns greedy tokens and the smallest margin of a choice."""
    margins = []
    for _ in range(GREEDY_STEPS):
        best = model.run(ids, torch.arange(len(ids)), None)[1][-1].topk(2)
        margins.append((best.values[0] - best.values[1]).item())
        ids = torch.cat((ids, best.indices[:1]))
    return ids[-GREEDY_STEPS:], min(margins)


def write_expected(path: Path, model, rng) -> str:
    sequences = [torch.from_numpy(rng.integers(0, model.vocab, n)) for n in LENGTHS]
    offsets = [model.longest - n if model.window == "end" else 0 for n in LENGTHS]
    rows = [draw(rng, n, model.input_width, scale=1) if model.input_width else None
            for n in LENGTHS]
    answers = [model.run(ids, torch.arange(first, first + len(ids)), r)
               for ids, first, r in zip(sequences, offsets, rows)]
    expected = {"lengths": torch.tensor(LENGTHS, dtype=torch.int32),
                "position_offsets": torch.tensor(offsets, dtype=torch.int32),
                "input_ids": torch.cat(sequences).int(),
                "states": torch.cat([state for state, _ in answers])}
    if model.input_width:
        expected["inputs"] = torch.cat(rows)
    note = f"state std {expected['states'].std():.2f}"
    if answers[0][1] is not None:
        logits = [logits for _, logits in answers]
        scores = [F.pad(rows_[:-1].double().log_softmax(-1).gather(1, ids[1:, None])[:, 0], (1, 0))
                  for rows_, ids in zip(logits, sequences)]
        greedy, margin = torch.full((len(LENGTHS), GREEDY_STEPS), -1), float("inf")
        for row, ids in zip(greedy, sequences):
            if model.causal and model.window != "end" and len(ids) + GREEDY_STEPS <= model.longest:
                row[:], smallest = greedy_tokens(model, ids)
                margin = min(margin, smallest)
        assert margin > GREEDY_MARGIN, f"margin {margin:.4f}; take another seed"
        expected |= {"logits": torch.cat(logits), "prompt_logprobs": torch.cat(scores).float(),
                     "greedy": greedy.int()}
        note += f"  logit std {torch.cat(logits).std():.2f}  margin {margin:.3f}"
    save_file({name: t.contiguous() for name, t in expected.items()}, path / "expected.safetensors")
    return note


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
    for name, (seed, model) in MODELS.items():
        path = out / name
        shutil.rmtree(path, ignore_errors=True)
        rng = np.random.default_rng(seed)
        model.write(path, rng)
        print(f"{name:24} seed {seed}  {write_expected(path, model, rng)}", flush=True)


if __name__ == "__main__":
    main()
