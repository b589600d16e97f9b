#!/usr/bin/env python3
"""Trains the ranker of this folder (PyTorch, CPU) and records what it is worth.

The model is RankMixer (arXiv 2507.15551): the last seven items of a history and a candidate are its
eight feature tokens, and its score says how well the candidate follows. Histories are those of
models/recommender. Writes config.json, model.safetensors, and heldout.json: histories, the items
that followed, and the hit rates in the first ten of all items, ranked by the model in PyTorch and
by popularity.
"""

import argparse
import importlib.util
import json
import pathlib
import random

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent


def of_the_recommender():
    """Returns models/recommender/train.py as a module: it has this one's name."""
    spec = importlib.util.spec_from_file_location("recommender",
                                                  HERE.parent / "recommender" / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recommender = of_the_recommender()
ITEMS, TOP = recommender.ITEMS, recommender.TOP

TOKENS, WIDTH, INNER, LAYERS = 8, 64, 64, 2
NEGATIVES = 31


class OfEachToken(nn.Module):
    """A linear layer for each token."""

    def __init__(self, inputs, outputs):
        super().__init__()
        weight = torch.randn(TOKENS, inputs, outputs) / inputs ** 0.5
        self.position_weight = nn.Parameter(weight)
        self.position_bias = nn.Parameter(torch.zeros(TOKENS, outputs))

    def forward(self, x):
        return torch.einsum("bld,lde->ble", x, self.position_weight) + self.position_bias


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixing_norm, self.ffn_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.ffn = nn.ModuleDict({"up": OfEachToken(WIDTH, INNER),
                                  "down": OfEachToken(INNER, WIDTH)})

    def forward(self, x):
        mixed = x.unflatten(2, (TOKENS, -1)).transpose(1, 2).flatten(2)
        x = self.mixing_norm(mixed + x)
        return self.ffn_norm(self.ffn["down"](F.gelu(self.ffn["up"](x))) + x)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(ITEMS, WIDTH),
                                    "layers": nn.ModuleList(Block() for _ in range(LAYERS))})
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, rows):  # [n, TOKENS]
        x = self.model["embed_tokens"](rows)
        for layer in self.model["layers"]:
            x = layer(x)
        return self.score(x.mean(1))[:, 0]


def rows_of(histories, candidates):
    """Returns the rows [n, c, TOKENS] of histories [n] with their candidates [n, c]."""
    tails = torch.tensor([([0] * TOKENS + items)[1 - TOKENS:] for items in histories])
    tails = tails[:, None].expand(-1, candidates.shape[1], -1)
    return torch.cat((tails, candidates[:, :, None]), dim=2)


def scores_of(model, histories, candidates):
    rows = rows_of(histories, candidates)
    return model(rows.flatten(0, 1)).view(rows.shape[:2])


def train(model, sequences, steps, draw):
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for step in range(steps):
        batch = [items[:draw.randint(5, len(items))] for items in draw.sample(sequences, 128)]
        candidates = torch.randint(1, ITEMS, (len(batch), 1 + NEGATIVES))
        candidates[:, 0] = torch.tensor([items[-1] for items in batch])
        scores = scores_of(model, [items[:-1] for items in batch], candidates)
        loss = F.cross_entropy(scores, torch.zeros(len(batch), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def hit_rate(model, histories, followed):
    everything = torch.arange(1, ITEMS).expand(len(histories), -1)
    with torch.no_grad():
        top = scores_of(model, histories, everything).topk(TOP).indices + 1
    return sum(item in items for item, items in zip(followed, top.tolist())) / len(followed)


def config() -> dict:
    return {"architectures": ["RankMixerForSequenceClassification"], "model_type": "rank_mixer",
            "vocab_size": ITEMS, "hidden_size": WIDTH, "intermediate_size": INNER,
            "num_hidden_layers": LAYERS, "num_tokens": TOKENS, "num_labels": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    draw = random.Random(2)
    sequences = [recommender.sequence(draw, draw.randint(8, 26)) for _ in range(20000)]
    model = Ranker()
    train(model, sequences, arguments.steps, draw)

    held_out = [recommender.sequence(draw, draw.randint(5, 24)) for _ in range(300)]
    histories, followed = [items[:-1] for items in held_out], [items[-1] for items in held_out]
    popular = recommender.popular_items(sequences)
    result = {"histories": histories, "followed": followed,
              "hit_rate": hit_rate(model, histories, followed),
              "popularity_hit_rate": sum(item in popular for item in followed) / len(followed)}
    print({key: value for key, value in result.items() if key.endswith("rate")})
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "config.json").write_text(json.dumps(config(), indent=2) + "\n")
    save_file({name: values.contiguous() for name, values in model.state_dict().items()},
              arguments.out / "model.safetensors", {"format": "pt"})
    (arguments.out / "heldout.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
