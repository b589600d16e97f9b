#!/usr/bin/env python3
"""Trains the ranker of this folder (PyTorch, CPU) and records its hit rate.

The model is RankMixer (arXiv 2507.15551). Its eight feature tokens are the last seven items of a
history and a candidate, and its score is high if the candidate is likely to follow. The histories
have the rule of models/recommender. Writes config.json, model.safetensors, and heldout.json, which
has histories, the items that followed, and the share of them that are among the first ten when all
items are ranked by the model in PyTorch, or by popularity.
"""

import json
import pathlib
import random
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "recommender"))

import items as shared  # noqa: E402
from items import ITEMS, TOP  # noqa: E402

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
    def loss_of_batch():
        batch = [items[:draw.randint(5, len(items))] for items in draw.sample(sequences, 128)]
        candidates = torch.randint(1, ITEMS, (len(batch), 1 + NEGATIVES))
        candidates[:, 0] = torch.tensor([items[-1] for items in batch])
        scores = scores_of(model, [items[:-1] for items in batch], candidates)
        return F.cross_entropy(scores, torch.zeros(len(batch), dtype=torch.long))

    shared.minimise(model, loss_of_batch, steps, 0.02)


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
    arguments = shared.arguments(__doc__.splitlines()[0], 1500, HERE)
    draw = random.Random(2)
    sequences = shared.sequences(draw, 20000)
    model = Ranker()
    train(model, sequences, arguments.steps, draw)

    result = shared.report(draw, lambda *of: hit_rate(model, *of), sequences)
    del result["popular"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "config.json").write_text(json.dumps(config(), indent=2) + "\n")
    save_file({name: values.contiguous() for name, values in model.state_dict().items()},
              arguments.out / "model.safetensors", {"format": "pt"})
    (arguments.out / "heldout.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
