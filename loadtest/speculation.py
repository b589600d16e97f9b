#!/usr/bin/env python3
"""Measures what drafted tokens gain and cost: tokens per second of one stream, and the latency of
other requests.

    build/venv/bin/python loadtest/speculation.py --out speculation.json --table speculation.md

One daemon serves the model with `speculation: ngram`, or with a draft model (--draft). Calls with
and without the request parameter `speculation: false` alternate, so that both meet the same state
of the machine. The kinds of texts: "code editing" predicts the answer with one byte in forty
changed, "summarisation" predicts pieces of the answer in another order, "chat" samples without a
prediction, and "random" samples at a temperature at which nothing repeats. The answers of both ways
must be equal. The model's tokens are bytes, as those of the demo model.

Then other requests arrive at random times next to a stream, at shares of the rate that saturates
the daemon, with and without drafts for the stream.
"""

import argparse
import concurrent.futures
import dataclasses
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "deploy"))
sys.path.insert(0, str(ROOT / "clients" / "python"))
import reporting  # noqa: E402
from lateness import percentile  # noqa: E402
from processes import DEMO, Daemon  # noqa: E402
from sluice_client import Client  # noqa: E402

KINDS = ("code editing", "summarisation", "chat", "random")
LOADS = (0.3, 0.8)
MOST_CALLS = 512  # in flight; a later call waits, which counts as its latency


def printable(source: random.Random, count: int) -> str:
    return "".join(chr(source.randrange(97, 123)) for _ in range(count))


def edited(answer: str, source: random.Random) -> str:
    return "".join(chr(97 + source.randrange(26)) if source.random() < 1 / 40 else each
                   for each in answer)


def rearranged(answer: str, source: random.Random) -> str:
    pieces = [answer[at:at + 16] for at in range(0, len(answer), 16)]
    source.shuffle(pieces)
    return "".join(pieces)


def write_pair(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes a Llama of 134M parameters and a draft model, and returns their directories.

    Their tokens are bytes, and only printable ones are probable. The draft model has the first two
    layers. The other layers of the model add a tenth of what random layers would, so that the draft
    model is often right.
    """
    import numpy as np
    from peers import checkpoint

    shape = checkpoint.Shape(vocab=258, hidden=768, intermediate=2048, layers=19, heads=12,
                             kv_heads=12)
    tensors = checkpoint.tensors_of(shape, seed=1)
    head = tensors["lm_head.weight"]
    head[:ord(" ")] = head[ord("~") + 1:] = 0
    added = tuple(f"model.layers.{layer}." for layer in range(2, shape.layers))
    for name in tensors:
        if name.startswith(added) and name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] *= np.float32(0.1)
    few = {name: each for name, each in tensors.items() if not name.startswith(added)}
    for name, layers, weights in (("large", shape.layers, tensors), ("small", 2, few)):
        checkpoint.save(folder / name, dataclasses.replace(shape, layers=layers), 1, weights,
                        bos_token_id=256, eos_token_id=257, sluice={"tokenizer": "byte"})
    return folder / "large", folder / "small"


class Stream:
    """One stream of generations, with and without drafts."""

    def __init__(self, client: Client, options: argparse.Namespace):
        self._client, self._options = client, options

    def answer(self, prompt: str, speculation: bool, seed: int, **more):
        began = time.perf_counter()
        answer = self._client.generate("model", prompt, max_tokens=self._options.tokens, seed=seed,
                                       ignore_eos=True, speculation=speculation, **more)
        return answer, time.perf_counter() - began

    def rates(self, kind: str) -> dict:
        source = random.Random(kind)
        plain, drafting, drafted, accepted = [], [], 0, 0
        for round_number in range(self._options.rounds):
            prompt = printable(source, self._options.prompt)
            more = {"temperature": {"chat": 0.8, "random": 1.5}.get(kind, 0.7)}
            if kind in ("code editing", "summarisation"):
                text = self.answer(prompt, False, round_number, **more)[0].text
                change = edited if kind == "code editing" else rearranged
                more["prediction"] = change(text, source)
            took, answers = {}, {}
            for speculation in sorted((False, True), reverse=round_number % 2 == 1):
                answers[speculation], took[speculation] = self.answer(
                    prompt, speculation, round_number, **more)
            if answers[False].token_ids != answers[True].token_ids or \
                    answers[False].logprobs != answers[True].logprobs:
                raise SystemExit(f"{kind}: the answers differ")
            plain.append(took[False])
            drafting.append(took[True])
            drafted += answers[True].drafted_tokens
            accepted += answers[True].accepted_tokens
        ratios = sorted(a / b for a, b in zip(plain, drafting))
        return {"kind": kind, "plain_tokens_s": self._options.tokens / statistics.median(plain),
                "drafting_tokens_s": self._options.tokens / statistics.median(drafting),
                "ratio": statistics.median(ratios),
                "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-len(ratios) // 4]],
                "drafted": drafted, "accepted": accepted}


def others(client: Client, options, load: float, speculation: bool, rate: float) -> float:
    """Returns the 99th percentile of the latency of requests next to a stream, in seconds."""
    source = random.Random(f"{load}")
    stop = threading.Event()

    def stream():
        texts = random.Random(1)
        while not stop.is_set():
            client.generate("model", "ab" * 8 + printable(texts, 16), max_tokens=options.tokens,
                            ignore_eos=True, speculation=speculation)

    def one(due):
        client.generate("model", "once upon", max_tokens=8, ignore_eos=True, speculation=False)
        return time.perf_counter() - due

    with concurrent.futures.ThreadPoolExecutor(MOST_CALLS) as pool:
        streaming = pool.submit(stream)
        try:
            calls, end = [], time.perf_counter() + options.seconds
            while not calls or time.perf_counter() < end:
                time.sleep(source.expovariate(load * rate))
                calls.append(pool.submit(one, time.perf_counter()))
            concurrent.futures.wait(calls)
        finally:
            stop.set()
    streaming.result()
    return p99(calls)


def p99(calls: list[concurrent.futures.Future]) -> float:
    """Returns the 99th percentile of the results. Raises the exception of a call that failed."""
    return percentile([call.result() for call in calls], 0.99)


def saturation(client: Client, seconds: float) -> float:
    """Returns the rate of short requests of eight callers, in requests per second."""
    end = time.perf_counter() + seconds

    def calls(_):
        count = 0
        while time.perf_counter() < end:
            client.generate("model", "once upon", max_tokens=8, ignore_eos=True, speculation=False)
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(calls, range(8))) / seconds


def table(report: dict) -> str:
    lines = ["| texts | plain tokens/s | with drafts | ratio (quartiles) | drafted | accepted | "
             "rejected |", "|---|---|---|---|---|---|---|"]
    for row in report["streams"]:
        low, high = row["ratio_quartiles"]
        lines.append(f"| {row['kind']} | {row['plain_tokens_s']:.0f} | "
                     f"{row['drafting_tokens_s']:.0f} | {row['ratio']:.3f} ({low:.3f} to "
                     f"{high:.3f}) | {row['drafted']} | {row['accepted']} | "
                     f"{row['drafted'] - row['accepted']} |")
    lines += ["", "| load of other requests | p99 without drafts, ms | with drafts, ms |",
              "|---|---|---|"]
    for row in report["others"]:
        lines.append(f"| {row['load']} | {1000 * row['plain_p99_s']:.2f} | "
                     f"{1000 * row['drafting_p99_s']:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=DEMO)
    parser.add_argument("--draft", type=pathlib.Path, help="the directory of a draft model")
    parser.add_argument("--random-model", choices=("ngram", "draft"),
                        help="a random Llama of 134M parameters instead, with n-grams or with a "
                             "draft model")
    parser.add_argument("--profile", default="auto", help="numerics profile of the daemon")
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=160, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20, help="of each load; 0: no loads")
    reporting.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        if options.random_model:
            options.model, draft = write_pair(folder)
            options.draft = draft if options.random_model == "draft" else None
        config = folder / "sluice.yaml"
        config.write_text(f"models:\n  - name: model\n    path: {options.model}\n"
                          f"    quantization: {options.quantization}\n" +
                          (f"    speculation: {{draft: draft}}\n"
                           f"  - name: draft\n    path: {options.draft}\n"
                           if options.draft else "    speculation: ngram\n"))
        with Daemon(folder, "--config", config, f"--cpu.threads={options.threads}",
                    f"--cpu.profile={options.profile}", model="") as daemon:
            client = Client(daemon.grpc)
            stream = Stream(client, options)
            report = reporting.heading("speculation") | {
                "options": reporting.options_of(options),
                "streams": [stream.rates(kind) for kind in KINDS],
                "others": []}
            rate = saturation(client, options.seconds / 4) if options.seconds else 0
            for load in LOADS if options.seconds else ():
                plain, drafting = [], []
                for _ in range(3):
                    plain.append(others(client, options, load, False, rate))
                    drafting.append(others(client, options, load, True, rate))
                report["others"].append({"load": load, "plain_p99_s": statistics.median(plain),
                                         "drafting_p99_s": statistics.median(drafting)})
    reporting.write(options, report, table(report))


if __name__ == "__main__":
    main()
