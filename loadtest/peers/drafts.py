#!/usr/bin/env python3
"""Compares drafted tokens with those of llama.cpp: tokens per second of one greedy stream, with and
without drafts.

    build/venv/bin/python loadtest/peers/drafts.py --llama-cpp FOLDER --gguf-python PYTHON \\
      --out FILE --table FILE

FOLDER has the programs llama-lookup and llama-speculative-simple, built for the machine; PYTHON has
the package gguf of requirements-llama_native.txt. The models are the random Llama of 134M
parameters of speculation.py and its draft model, in f32. A greedy answer of such a model soon
repeats itself, so n-grams find drafts. Each program runs without drafts too. The rounds are
interleaved; both have the same prompts and number of threads.
"""

import argparse
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests" / "deploy"),
                str(HERE.parents[1] / "clients" / "python")]
import reporting  # noqa: E402
import speculation  # noqa: E402
from processes import Daemon  # noqa: E402
from sluice_client import Client  # noqa: E402

DRAFTED = 8  # tokens that llama.cpp drafts at a time


def llama_cpp(options, program: str, model: pathlib.Path, prompt: str, *more) -> tuple:
    """Returns the decoded tokens per second, the drafted tokens and the accepted ones."""
    command = [options.llama_cpp / program, "-m", model, "-p", prompt, "-n", options.tokens,
               "--temp", 0, "-t", options.threads, "-c", 512, "--ignore-eos", "-fa", "off", *more]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    told = ended.stdout + ended.stderr
    try:
        rate = re.search(r"decoded +(\d+) tokens in +([\d.]+) seconds", told)
        drafted, accepted = (int(re.search(rf"{name} += (\d+)", told)[1])
                             for name in ("n_drafted", "n_accept"))
        return int(rate[1]) / float(rate[2]), drafted, accepted
    except TypeError:
        raise SystemExit(f"{program} failed:\n{told[-2000:]}") from None


class Sluice:
    """A daemon that drafts for the model by n-grams, or by the draft model."""

    def __init__(self, options, folder: pathlib.Path, model: pathlib.Path, source: str):
        folder.mkdir()
        config = folder / "sluice.yaml"
        config.write_text(f"models:\n  - name: model\n    path: {model}\n"
                          f"    speculation: {source}\n  - name: draft\n"
                          f"    path: {model.parent / 'small'}\n")
        self.daemon = Daemon(folder, "--config", config, f"--cpu.threads={options.threads}",
                             "--cpu.profile=auto", model="")
        self._client, self._tokens = Client(self.daemon.grpc), options.tokens

    def rate(self, prompt: str, drafts: bool) -> tuple:
        """Returns the tokens per second after the first message, the drafted and accepted ones."""
        began, count, last = 0.0, 0, None
        for last in self._client.stream("model", prompt, max_tokens=self._tokens, temperature=0,
                                        ignore_eos=True, speculation=drafts):
            if began:
                count += len(last.token_ids)
            else:
                began = time.perf_counter()
        return (count / (time.perf_counter() - began), last.drafted_tokens, last.accepted_tokens)


def measure(options, folder: pathlib.Path) -> list[dict]:
    large, small = speculation.write_pair(folder)
    for each in (large, small):
        subprocess.run([options.gguf_python, HERE / "serve" / "gguf_model.py", each], check=True)
    target = large / "model.gguf"
    pair = ("-md", small / "model.gguf", "--spec-type", "draft-simple")
    ngram = Sluice(options, folder / "ngram", large, "ngram")
    draft = Sluice(options, folder / "draft", large, "{draft: draft}")
    # For each source of drafts and each server: decoding a prompt, with or without drafts.
    arms = {
        ("n-grams", "Sluice"): ngram.rate,
        ("n-grams", "llama.cpp"): lambda prompt, drafts: llama_cpp(
            options, "llama-lookup", target, prompt, "--spec-draft-n-max", DRAFTED * drafts),
        ("draft model", "Sluice"): draft.rate,
        # Its program cannot run without drafts, so both sources have the same plain rate.
        ("draft model", "llama.cpp"): lambda prompt, drafts: llama_cpp(
            options, "llama-speculative-simple", target, prompt, "--spec-draft-n-max", DRAFTED,
            *pair) if drafts else llama_cpp(
                options, "llama-lookup", target, prompt, "--spec-draft-n-max", 0),
    }
    rows = {arm: {"plain": [], "drafts": [], "drafted": 0, "accepted": 0} for arm in arms}
    source = random.Random(1)
    try:
        for number in range(options.rounds):
            prompt = speculation.printable(source, options.prompt)
            for arm, rate in sorted(arms.items(), reverse=number % 2 == 1):
                row = rows[arm]
                row["plain"].append(rate(prompt, False)[0])
                tokens_s, drafted, accepted = rate(prompt, True)
                row["drafts"].append(tokens_s)
                row["drafted"] += drafted
                row["accepted"] += accepted
    finally:
        for each in (ngram, draft):
            each.daemon.stop()
    return [{"source": arm[0], "server": arm[1],
             "ratio": statistics.median(b / a for a, b in zip(row["plain"], row["drafts"])),
             "plain_tokens_s": statistics.median(row["plain"]),
             "drafting_tokens_s": statistics.median(row["drafts"]),
             "drafted": row["drafted"], "accepted": row["accepted"]}
            for arm, row in rows.items()]


def table(rows: list[dict]) -> str:
    lines = ["| drafts | server | plain tokens/s | with drafts | ratio | drafted | accepted |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['source']} | {row['server']} | {row['plain_tokens_s']:.1f} | "
                     f"{row['drafting_tokens_s']:.1f} | {row['ratio']:.2f} | {row['drafted']} | "
                     f"{row['accepted']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True,
                        help="the folder of llama.cpp's programs")
    parser.add_argument("--gguf-python", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=160, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=11)
    reporting.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, pathlib.Path(folder))
    report = reporting.heading("drafts next to llama.cpp") | {
        "options": reporting.options_of(options, "llama_cpp", "gguf_python"), "rows": rows}
    reporting.write(options, report, table(rows))


if __name__ == "__main__":
    main()
