#!/usr/bin/env python3
"""Compares a daemon's own account of its memory with the memory of its process.

Starts a daemon for each limit of KV pages and sends it prompts of its longest sequences until it
evicts pages, which shows that the limit is reached. Then reads its metrics. Both the account and
the process memory are counted in excess of a daemon that serves the small demo model.
"""

import argparse
import json
import pathlib
import sys

import reporting
import sluice_load
from ready import Daemon

USES = ("weights", "plans", "activations", "kv")
MIB = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[1]


def readings(daemon):
    account = {use: daemon.metric("sluice_device_memory_bytes", f'state="{use}"') for use in USES}
    return {"account": account, "resident": daemon.metric("sluice_memory_bytes", 'use="all"'),
            "evicted": daemon.metric("sluice_kv_pages_evicted_total")}


def send(options, daemon, length, seed):
    sluice_load.report_of(
        [options.sluice_load, "run", "--server", daemon.grpc, "--model", "m", "--concurrency", 4,
         "--lengths", f"fixed:{length}", "--max-tokens", 1, "--duration", 2, "--warm-up", 0,
         "--variants", 64, "--seed", seed, "--quiet"])


def fill(options, directory, kv, most_rounds=100):
    """Returns the readings of a daemon whose pages are full."""
    positions = json.loads((pathlib.Path(directory) / "config.json").read_text())[
        "max_position_embeddings"]
    daemon = Daemon(options.sluiced, directory, f"--engine.kv.memory-bytes={kv}")
    try:
        for seed in range(most_rounds):
            send(options, daemon, positions - 1, seed)
            read = readings(daemon)
            if read["evicted"] > 0:
                return read
    finally:
        daemon.stop()
    sys.exit(f"memory.py: pages of {kv} stay free")


def table(options, base, rows):
    lines = [
        "# The account of memory, and the memory of the process", "",
        f"{options.label}. The memory of a daemon whose KV pages are full, in excess of a daemon "
        "with the demo model whose pages are also full. Resident memory excludes mapped files "
        "(`sluice_memory_bytes{use=\"all\"}`). In MiB.", "",
        "| model | limit of KV pages | weights | activations | plans | KV | account | resident | "
        "account / resident |", "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        account = row["full"]["account"]
        named = sum(account.values()) - sum(base["account"].values())
        taken = row["full"]["resident"] - base["resident"]
        uses = " | ".join(f"{account[use] / MIB:.1f}"
                          for use in ("weights", "activations", "plans", "kv"))
        lines.append(f"| {row['model']} | {row['kv']} | {uses} | {named / MIB:.1f} | "
                     f"{taken / MIB:.1f} | {named / taken:.3f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True,
                        help="NAME=DIRECTORY; may be repeated")
    parser.add_argument("--kv", action="append", required=True,
                        help="a limit of KV pages, such as 256MiB; may be repeated")
    parser.add_argument("--sluiced", default="build/release/server/sluiced")
    parser.add_argument("--sluice-load", default="build/release/loadtest/load/sluice-load")
    parser.add_argument("--label", default="A machine", help="name of the machine in the table")
    reporting.add_options(parser)
    options = parser.parse_args()
    base = fill(options, ROOT / "models" / "demo", "32MiB")
    rows = []
    for model in options.model:
        name, directory = model.split("=", 1)
        rows += [{"model": name, "kv": kv, "full": fill(options, directory, kv)}
                 for kv in options.kv]
    reporting.write(options, {"benchmark": "memory", "base": base, "models": rows},
                    table(options, base, rows))


if __name__ == "__main__":
    main()
