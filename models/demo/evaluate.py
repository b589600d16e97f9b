#!/usr/bin/env python3
"""Bits per byte of saved demo models, whole and with an operator removed, and continuations.

Uses the saved bf16 weights, widened to f32. Each folder holds config.json and model.safetensors. If
train.py left its log.jsonl there, tokens and seconds are read from it.
"""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import corpus
from model import DemoModel, PositionWiseLinear, load

PROMPTS = (
    "In the beginning ",
    "And it came to pass, that when the king heard ",
    "Blessed is the man ",
)
HELDOUT_BYTES = 4096  # heldout.txt is the held-out chapter nearest to this size


@dataclass
class Score:
    per_window: list[float]
    mean: float  # over all bytes of all windows


@torch.no_grad()
def bits_per_byte(model: DemoModel, windows: list[bytes], batch: int = 16) -> Score:
    """Each window is read as bos + its bytes; every byte is predicted from the preceding ones."""
    bits = []
    for i in range(0, len(windows), batch):
        group = windows[i:i + batch]
        width = max(map(len, group))
        targets = torch.tensor([list(w) + [corpus.IGNORE] * (width - len(w)) for w in group])
        inputs = torch.cat([torch.full((len(group), 1), corpus.BOS), targets[:, :-1]], dim=1)
        logits = model(inputs.masked_fill(inputs == corpus.IGNORE, corpus.EOS))
        nats = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=corpus.IGNORE,
                               reduction="none")
        bits += (nats.double().sum(1) / math.log(2)).tolist()
    return Score([b / len(w) for b, w in zip(bits, windows)], sum(bits) / sum(map(len, windows)))


@torch.no_grad()
def continue_text(model: DemoModel, prompt: str, temperature: float = 0.0, top_k: int = 20,
                  seed: int = 1) -> str:
    """Until eos or the last position; greedy at temperature 0. Returns the continuation."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [corpus.BOS, *prompt.encode("ascii")]
    first = len(tokens)
    while len(tokens) < model.config["max_position_embeddings"]:
        logits = model(torch.tensor([tokens]))[0, -1]
        if temperature == 0:
            token = int(logits.argmax())
        else:
            best = logits.topk(top_k)
            choice = torch.multinomial((best.values / temperature).softmax(-1), 1,
                                       generator=generator)
            token = int(best.indices[choice])
        if token >= corpus.BOS:
            break
        tokens.append(token)
    return bytes(tokens[first:]).decode("latin-1")


def without_xsa(model: DemoModel) -> DemoModel:
    for layer in model.model.layers:
        layer.self_attn.xsa_eps = None
    return model


def with_position_weights(model: DemoModel, change) -> DemoModel:
    for module in model.modules():
        if isinstance(module, PositionWiseLinear):
            module.position_weight.data = change(module.position_weight.data)
    return model


def evaluate(folder: Path, windows: list[bytes]) -> dict:
    model = load(folder)
    sluice = model.config["sluice"]
    result = {"parameters": sum(p.numel() for p in model.parameters())}
    log = folder / "log.jsonl"
    if log.exists():
        last = json.loads(log.read_text().splitlines()[-1])
        result |= {key: last[key] for key in ("step", "tokens", "seconds")}
    result["val_bpb"] = bits_per_byte(model, windows).mean
    if sluice["position_wise"]["projections"]["v"]:
        zeroed = with_position_weights(load(folder), torch.zeros_like)
        result["val_bpb_position_wise_zeroed"] = bits_per_byte(zeroed, windows).mean
        # Using the same matrix everywhere shows the effect of differences between positions.
        averaged = with_position_weights(load(folder), lambda w: w.mean(0).expand_as(w))
        result["val_bpb_position_wise_averaged"] = bits_per_byte(averaged, windows).mean
    if sluice["xsa"]["layers"]:
        result["val_bpb_xsa_off"] = bits_per_byte(without_xsa(load(folder)), windows).mean
    for key, value in result.items():
        if key.startswith("val_bpb"):
            result[key] = round(value, 4)
    result["continuations"] = [
        {"prompt": prompt, "greedy": continue_text(model, prompt),
         "temperature 0.8, top-k 20, seed 1": continue_text(model, prompt, temperature=0.8)}
        for prompt in PROMPTS]
    return result


def write_heldout(folder: Path, chapters: list[corpus.Chapter]) -> None:
    """Writes heldout.txt, and the model's score on it to heldout.json."""
    chapter = min(chapters, key=lambda c: abs(len(c.text) - HELDOUT_BYTES))
    (folder / "heldout.txt").write_bytes(chapter.text)
    model = load(folder)
    positions = model.config["max_position_embeddings"]
    windows = corpus.consecutive_windows(chapter.text, positions)
    score = bits_per_byte(model, windows)
    report = {
        "text": "heldout.txt",
        "windows": f"consecutive: the text cut every {positions - 1} bytes; the tokens of a window "
                   "are bos (256) and its bytes; every byte is predicted from what precedes it in "
                   "its window; bits are -log2 of the softmax over all 258 tokens",
        "arithmetic": "f32, bf16 weights widened",
        "bits_per_byte": round(score.mean, 6),
        "per_window": [{"offset": i * (positions - 1), "bytes": len(w),
                        "bits_per_byte": round(b, 6)}
                       for i, (w, b) in enumerate(zip(windows, score.per_window))],
    }
    (folder / "heldout.json").write_text(json.dumps(report, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="saved models")
    parser.add_argument("--out", type=Path, help="also write the results to this file as JSON")
    parser.add_argument("--heldout", action="store_true",
                        help="also write heldout.txt and heldout.json into the (one) folder")
    args = parser.parse_args()
    if args.heldout and len(args.folders) != 1:
        parser.error("--heldout needs exactly one folder")
    _, held_out = corpus.split(corpus.read_chapters())
    results = {}
    for folder in args.folders:
        positions = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
        windows = corpus.validation_windows(held_out, positions)
        results[folder.resolve().name] = evaluate(folder, windows)
        if args.heldout:
            write_heldout(folder, held_out)
    text = json.dumps(results, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
