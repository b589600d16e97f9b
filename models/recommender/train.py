#!/usr/bin/env python3
"""Trains the recommender of this folder (PyTorch, CPU) and records its hit rate.

The sequences come from items.py. The model is SASRec's (arXiv 1808.09781) with a feed-forward
matrix for each position of the window, which is filled from the right. Writes config.json and
model.safetensors with tools/convert, and heldout.json, which has histories, the items that
followed, and the share of them that are among the first ten by the model in PyTorch, or by
popularity.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

import items as shared
from items import ITEMS, TOP

HERE = pathlib.Path(__file__).resolve().parent
WINDOW, WIDTH, HEADS, LAYERS = 16, 32, 2, 2


class PositionWise(nn.Module):
    """A matrix for each position."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, WIDTH, WIDTH).repeat(WINDOW, 1, 1) / WIDTH ** 0.5)
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return torch.einsum("bld,lde->ble", x, self.weight) + self.bias


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH, 1e-8), nn.LayerNorm(WIDTH, 1e-8)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = PositionWise(), PositionWise()

    def forward(self, x, mask):
        query = self.attention_norm(x)
        q, k, v = (f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for f, y in ((self.q, query), (self.k, x), (self.v, x)))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.mlp_norm(query + self.o(attended.transpose(1, 2).flatten(2)))
        return x + self.down(F.relu(self.up(x)))


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items, self.places = nn.Embedding(ITEMS, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, 1e-8)
        nn.init.normal_(self.items.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.1)

    def forward(self, window):  # [n, WINDOW], zeros on the left where a history is short
        x = self.items(window) * WIDTH ** 0.5 + self.places.weight
        causal = torch.ones(WINDOW, WINDOW, dtype=torch.bool).tril()
        seen = causal & (window != 0)[:, None, :]
        mask = torch.zeros(seen.shape).masked_fill(~seen, -1e9)[:, None]
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) @ self.items.weight.T


def right_aligned(histories):
    rows = torch.zeros(len(histories), WINDOW, dtype=torch.long)
    for row, history in zip(rows, histories):
        tail = torch.tensor(history[-WINDOW:])
        row[-len(tail):] = tail
    return rows


def train(model, sequences, steps, draw):
    def loss_of_batch():
        batch = [history[:draw.randint(4, len(history))] for history in draw.sample(sequences, 256)]
        window, target = right_aligned([history[:-1] for history in batch]), right_aligned(
            [history[1:] for history in batch])
        return F.cross_entropy(model(window).flatten(0, 1), target.flatten(), ignore_index=0)

    shared.minimise(model, loss_of_batch, steps, 0.01)


def hit_rate(model, histories, followed):
    with torch.no_grad():
        logits = model(right_aligned(histories))[:, -1]
    logits[:, 0] = -torch.inf
    top = logits.topk(TOP).indices.tolist()
    return sum(item in items for item, items in zip(followed, top)) / len(followed)


def main():
    arguments = shared.arguments(__doc__.splitlines()[0], 900, HERE)
    draw = random.Random(1)
    sequences = shared.sequences(draw, 6000)
    model = Recommender()
    train(model, sequences, arguments.steps, draw)

    result = shared.report(draw, lambda *of: hit_rate(model, *of), sequences)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = pathlib.Path(folder) / "recommender.pt"
        torch.save(model.state_dict(), checkpoint)
        subprocess.run(
            [
                sys.executable,
                HERE.parents[1] / "tools" / "convert",
                "--map",
                HERE / "map.yaml",
                checkpoint,
                arguments.out,
            ],
            check=True,
        )
    (arguments.out / "heldout.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
