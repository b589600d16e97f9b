"""Makes the golden models families/hstu_* and families/rank_mixer_*.

Three configurations of each, and their weights, are drawn from the seeds 1, 2 and 3 and computed in
float64 by recommender_statements.py. For HSTU the script also checks candidates that are computed
together, each seeing the history and itself: their values must equal the values of single
candidates at the end of the history. The daemon's tests read the committed files and never run this
script.

  python make_recommenders.py [--out FOLDER]
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import recommender_statements as statements

GREEDY_STEPS, GREEDY_MARGIN = 8, 1e-3


class Weights:
    """Draws tensors in float32 and stores them by name."""

    def __init__(self, rng):
        self.rng, self.all = rng, {}

    def add(self, name: str, *shape: int, mean: float = 0, scale: float = 0.2) -> None:
        values = mean + scale * self.rng.standard_normal(shape)
        self.all[name] = torch.from_numpy(values).float()

    def in_double(self) -> dict:
        return {name: values.double() for name, values in self.all.items()}


def hstu(seed: int):
    rng = np.random.default_rng(31000 + seed)
    heads, dim = int(rng.choice([1, 2, 3])), int(rng.choice([6, 8]))
    width, layers, vocab, positions = int(rng.choice([16, 20])), int(rng.choice([2, 3])), 43, 40
    kind = ("ForCausalLM", "Model", "ForSequenceClassification")[seed - 1]
    config = {"architectures": ["HSTU" + kind], "model_type": "hstu", "vocab_size": vocab,
              "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
              "attention_dim": dim, "linear_dim": dim, "max_position_embeddings": positions}
    weights = Weights(rng)
    weights.add("_embedding_module._item_emb.weight", vocab, width, scale=0.5)
    weights.add("_input_features_preproc._pos_emb.weight", positions, width, scale=0.5)
    for n in range(layers):
        layer = f"_hstu._attention_layers.{n}"
        weights.add(f"{layer}._uvqk", width, 4 * heads * dim, scale=1.5 / width ** 0.5)
        weights.add(f"{layer}._o.weight", width, heads * dim, scale=1.2 / (heads * dim) ** 0.5)
        weights.add(f"{layer}._o.bias", width)
    if kind == "ForSequenceClassification":
        config["num_labels"] = 3
        weights.add("score.weight", 3, width, scale=1 / width ** 0.5)
        weights.add("score.bias", 3)
    p = weights.in_double()
    h = {"layers": layers, "heads": heads, "eps": 1e-6, "positions": positions}

    def run(items):
        states = statements.hstu(p, h, items)
        row = {f"state_{k}": state for k, state in enumerate(states)} | {"states": states[-1]}
        if kind == "ForCausalLM":
            row["logits"] = states[-1] @ p["_embedding_module._item_emb.weight"].T
        if kind == "ForSequenceClassification":
            row["scores"] = F.linear(states[-1][-1], p["score.weight"], p["score.bias"])[None]
        return row

    history, targets = (torch.from_numpy(rng.integers(1, vocab, n)) for n in (9, 5))
    at_once = statements.hstu(p, h, torch.cat((history, targets)), len(targets))[-1]
    for i, target in enumerate(targets):
        alone = statements.hstu(p, h, torch.cat((history, target[None])))[-1]
        assert torch.allclose(at_once[9 + i], alone[9], rtol=0, atol=1e-12)
    return config, weights.all, run, rng, (1, 2, 9, 23), kind == "ForCausalLM"


def rank_mixer(seed: int):
    rng = np.random.default_rng(32000 + seed)
    tokens, block, vocab = int(rng.choice([3, 4, 6])), int(rng.choice([3, 8])), 43
    width, layers = tokens * block, int(rng.choice([2, 3]))
    inner, scored = int(rng.choice([20, 36])), seed != 2
    name, activation = (("gelu", F.gelu), ("relu", F.relu))[int(rng.integers(2))]
    config = {"architectures": [
                  "RankMixerForSequenceClassification" if scored else "RankMixerModel"],
              "model_type": "rank_mixer", "vocab_size": vocab, "hidden_size": width,
              "intermediate_size": inner, "num_hidden_layers": layers, "num_tokens": tokens,
              "hidden_act": name}
    weights = Weights(rng)
    weights.add("model.embed_tokens.weight", vocab, width, scale=0.5)
    for n in range(layers):
        layer = f"model.layers.{n}"
        for norm in ("mixing_norm", "ffn_norm"):
            weights.add(f"{layer}.{norm}.weight", width, mean=1)
            weights.add(f"{layer}.{norm}.bias", width)
        for part, shape in (("up", (width, inner)), ("down", (inner, width))):
            weights.add(f"{layer}.ffn.{part}.position_weight", tokens, *shape,
                        scale=1.2 / shape[0] ** 0.5)
            weights.add(f"{layer}.ffn.{part}.position_bias", tokens, shape[1])
    if scored:
        config["num_labels"] = 2
        weights.add("score.weight", 2, width, scale=1 / width ** 0.5)
        weights.add("score.bias", 2)
    p = weights.in_double()
    h = {"layers": layers, "eps": 1e-5, "activation": activation}

    def run(items):
        states = statements.rank_mixer(p, h, p["model.embed_tokens.weight"][items])
        row = {f"state_{k}": state for k, state in enumerate(states)} | {"states": states[-1]}
        if scored:
            row["scores"] = F.linear(states[-1].mean(0), p["score.weight"], p["score.bias"])[None]
        return row

    return config, weights.all, run, rng, (tokens,) * 4, False


def greedy(run, items):
    """Returns the next items, or None if an item wins by too small a margin."""
    for _ in range(GREEDY_STEPS):
        best = run(items)["logits"][-1].topk(2)
        if best.values[0] - best.values[1] < GREEDY_MARGIN:
            return None
        items = torch.cat((items, best.indices[:1]))
    return items[None, -GREEDY_STEPS:]


def make(path: Path, model) -> None:
    config, weights, run, rng, lengths, generates = model
    sequences, rows = [], []
    for length in lengths:
        for _ in range(50):
            items = torch.from_numpy(rng.integers(1, config["vocab_size"], length))
            row = run(items)
            if generates:
                row["greedy"] = greedy(run, items)
            if row.get("greedy", items) is not None:
                break
        else:
            raise SystemExit("no sequence has clear greedy tokens")
        sequences.append(items)
        rows.append(row)
    expected = {key: torch.cat([row[key] for row in rows]) for key in rows[0]}
    expected = {key: values.int() if key == "greedy" else values.float()
                for key, values in expected.items()}
    expected |= {"lengths": torch.tensor(lengths).int(), "input_ids": torch.cat(sequences).int()}
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    save_file({name: values.contiguous() for name, values in expected.items()},
              path / "expected.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "families")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # More threads would change the order of sums.
    for name, draw in (("hstu", hstu), ("rank_mixer", rank_mixer)):
        for seed in (1, 2, 3):
            make(arguments.out / f"{name}_{seed}", draw(seed))


if __name__ == "__main__":
    main()
