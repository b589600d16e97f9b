#!/usr/bin/env python3
"""Train one variant of the demo model on the King James Bible (CPU, f32)."""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import corpus
from evaluate import bits_per_byte
from model import DemoModel, PositionWiseLinear, make_config, position_wise, save

VARIANTS = {  # name: arguments of make_config
    "full": {},
    "no-xsa": {"xsa": False},
    "no-position-wise": {"position_wise": False},
    "plain": {"xsa": False, "position_wise": False},
}


# Positions with their own matrix; matrices between them are interpolated. Anchors are dense where a
# verse begins, because later positions differ little from their neighbours.
ANCHORS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 255)


def interpolation(positions: int) -> torch.Tensor:
    """[positions, anchors]: the weights of linear interpolation between ANCHORS."""
    at, anchors = torch.arange(positions).float().unsqueeze(1), torch.tensor(ANCHORS).float()
    left = torch.bucketize(at, anchors[1:-1], right=True)
    share = (at - anchors[left]) / (anchors[left + 1] - anchors[left])
    weights = torch.zeros(positions, len(ANCHORS))
    return weights.scatter(1, left, 1 - share).scatter(1, left + 1, share)


class InterpolatedPositionWise(nn.Module):
    """Stands in for PositionWiseLinear in training: W[l] = shared + interpolated deltas.

    A free W[l] would learn from one token per sequence, mostly noise. The shared matrix learns from
    all tokens. A delta, initially 0, learns from tokens near its anchor. save() stores W.
    """

    def __init__(self, positions: int, d_in: int, d_out: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))  # shared; laid out as nn.Linear's
        self.delta = nn.Parameter(torch.zeros(len(ANCHORS), d_in, d_out))
        self.register_buffer("interpolation", interpolation(positions))

    @property
    def position_weight(self):
        deltas = self.interpolation @ self.delta.flatten(1)
        return deltas.unflatten(1, self.delta.shape[1:]) + self.weight.T

    def forward(self, x):
        return position_wise(x, self.position_weight)


def make_model(config: dict, seed: int) -> DemoModel:
    model = DemoModel(config)
    for layer in model.model.layers:
        attention = layer.self_attn
        if isinstance(attention.v_proj, PositionWiseLinear):
            attention.v_proj = InterpolatedPositionWise(*attention.v_proj.position_weight.shape)
    generator = torch.Generator().manual_seed(seed)
    residual = 1 / math.sqrt(2 * config["num_hidden_layers"])
    for name, p in model.named_parameters():
        if p.dim() != 2:
            continue  # norms are initially 1, deltas 0
        std = 0.02 if "embed" in name else p.shape[1] ** -0.5
        if "o_proj" in name or "down_proj" in name:
            std *= residual
        nn.init.normal_(p, std=std, generator=generator)
    return model


def orthogonalise(g):
    """Newton-Schulz: about the nearest orthogonal matrix to each g[i] (coefficients of Muon)."""
    tall = g.shape[1] > g.shape[2]
    x = g.mT if tall else g
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (2.0315 * (a @ a) - 4.7750 * a) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, then an orthogonalised step; each param group holds matrices of one shape.

    torch.optim.Muon works in bf16, which a CPU without bf16 units has to emulate, and on one matrix
    at a time. This optimizer is f32 and batched.
    """

    def __init__(self, groups, lr, weight_decay, momentum=0.95):
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params, momentum = group["params"], group["momentum"]
            grads = torch.stack([p.grad for p in params])
            state = self.state[params[0]]
            buffer = state.setdefault("buffer", torch.zeros_like(grads))
            buffer.lerp_(grads, 1 - momentum)
            update = orthogonalise(grads.lerp(buffer, momentum))
            # An orthogonal m x n matrix has entries of about 1/sqrt(max(m, n)); bring them to
            # the size of Adam's, so that one learning rate suits every shape.
            scale = 0.2 * max(update.shape[1:]) ** 0.5
            for p, u in zip(params, update):
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"] * scale)


def make_optimisers(model, args):
    """Muon for the matrices of the layers, AdamW for embedding, norms and position deltas."""
    matrices, rest, deltas = {}, [], []
    for name, p in model.named_parameters():
        if name.endswith("delta"):
            deltas.append(p)
        elif p.dim() == 2 and "embed" not in name:
            matrices.setdefault(p.shape, []).append(p)
        else:
            rest.append(p)
    muon = Muon([{"params": params} for params in matrices.values()],
                lr=args.lr, weight_decay=args.weight_decay)
    groups = [{"params": rest, "lr": args.lr_adam, "weight_decay": 0.0}]
    if deltas:
        groups.append({"params": deltas, "lr": args.lr_delta, "weight_decay": args.decay_delta})
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-10, fused=True)
    for optimiser in (muon, adam):
        for group in optimiser.param_groups:
            group["peak_lr"] = group["lr"]
    return muon, adam


def schedule(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then linear decay to zero."""
    return min((step + 1) / warmup, (steps - step) / (steps - warmup))


def batches(count: int, size: int, seed: int):
    """Endless batches of window indices; every window once per pass, in an order from the seed."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=generator)
        yield from order[:count // size * size].view(-1, size)


def train(args) -> None:
    torch.manual_seed(args.seed)
    config = make_config(**VARIANTS[args.variant])
    positions = config["max_position_embeddings"]
    train_chapters, held_out = corpus.split(corpus.read_chapters())
    inputs, targets = corpus.training_windows(train_chapters, positions)
    validation = corpus.validation_windows(held_out, positions)

    model = make_model(config, args.seed)
    optimisers = make_optimisers(model, args)

    args.out.mkdir(parents=True, exist_ok=True)
    began, tokens, losses = time.monotonic(), 0, []
    stream = batches(len(inputs), args.batch, args.seed)
    with open(args.out / "log.jsonl", "w") as log:
        for step in range(args.steps):
            rows = next(stream)
            factor = schedule(step, args.steps, args.warmup)
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["peak_lr"] * factor
            loss = F.cross_entropy(model(inputs[rows]).flatten(0, 1), targets[rows].flatten(),
                                   ignore_index=corpus.IGNORE)
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
            losses.append(loss.item())
            tokens += int((targets[rows] != corpus.IGNORE).sum())

            done = step + 1
            validate = done % args.validate_every == 0 or done == args.steps
            if validate or done % args.log_every == 0:
                record = {"step": done, "tokens": tokens,
                          "seconds": round(time.monotonic() - began, 1),
                          "train_loss_nats": round(sum(losses) / len(losses), 4)}
                losses.clear()
                if validate:
                    record["val_bpb"] = round(bits_per_byte(model, validation).mean, 4)
                    save(model, args.out)
                print(json.dumps(record), file=log, flush=True)
                print(json.dumps(record), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--variant", choices=VARIANTS, default="full")
    parser.add_argument("--steps", type=int, default=3800)
    parser.add_argument("--out", type=Path, required=True,
                        help="folder for config.json, model.safetensors and log.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8, help="windows per step")
    parser.add_argument("--lr", type=float, default=1e-2, help="Muon: matrices of the layers")
    parser.add_argument("--lr-adam", type=float, default=1e-2, help="AdamW: embedding and norms")
    parser.add_argument("--lr-delta", type=float, default=1e-3, help="AdamW: position deltas")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--decay-delta", type=float, default=0.1)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--validate-every", type=int, default=380)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
