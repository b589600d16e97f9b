#!/usr/bin/env python3
"""Measures the cost of a fixed order of sums against the fastest free order of other libraries.

    cmake --build build/release --target onednn_bench attention_bench
    build/venv/bin/python loadtest/invariance/price.py --python PYTHON \\
      --out loadtest/results/invariance_price.json --table loadtest/results/invariance_price.md

Compares matrix products with oneDNN's with prepacked weights, alternating in one process, and
attention with PyTorch's scaled_dot_product_attention, alternating between two processes (PYTHON has
torch). Shapes, types and number of threads are the same. Neither oneDNN nor PyTorch promises that a
row has the same bits in another batch; their kernels choose an order by shape.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))

import reporting  # noqa: E402

SHAPE = r"/sequences:(\d+)/context:(\d+)/q_heads:(\d+)/kv_heads:(\d+)"
TORCH = """
import json, sys, time, torch
threads, shapes = int(sys.argv[1]), json.loads(sys.argv[2])
torch.set_num_threads(threads)
for line in sys.stdin:
    found = []
    for sequences, context, heads, kv_heads in shapes:
        q, k, v = (torch.rand(sequences, n, context, 64) for n in (heads, kv_heads, kv_heads))
        # PyTorch may be faster with the keys of a group repeated; repeating them is not timed.
        wide = [each.repeat_interleave(heads // kv_heads, dim=1) for each in (k, v)]
        times = {True: [], False: []}
        for turn in range(50):
            grouped = turn % 2 == 0
            keys, values = (k, v) if grouped else wide
            start = time.perf_counter()
            torch.nn.functional.scaled_dot_product_attention(
                q, keys, values, is_causal=True, enable_gqa=grouped)
            times[grouped].append(time.perf_counter() - start)
        found.append(1e6 * min(sorted(each)[12] for each in times.values()))
    print(json.dumps(found), flush=True)
"""


def benchmark(binary: pathlib.Path, pattern: str) -> list[dict]:
    ended = subprocess.run([binary, f"--benchmark_filter={pattern}", "--benchmark_format=json"],
                           capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)["benchmarks"]


def products(build: pathlib.Path, rounds: int, pattern: str) -> dict[str, list[float]]:
    """Returns our time / oneDNN's of each round, by shape and type."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for row in benchmark(build / "onednn_bench", pattern):
            rows, k, n = re.search(r"rows:(\d+)/k:(\d+)/n:(\d+)", row["name"]).groups()
            for kind in ("f32", "bf16"):
                if over := row.get(f"onednn_over_ours_{kind}"):
                    found.setdefault(f"{rows} x {k} x {n}, {kind}", []).append(1 / over)
    return found


def attention(build: pathlib.Path, python: pathlib.Path, threads: int,
              rounds: int) -> dict[str, list[float]]:
    pattern = f"BM_Prefill/threads:{threads}/"
    listed = subprocess.run([build / "attention_bench", "--benchmark_list_tests",
                             f"--benchmark_filter={pattern}"], capture_output=True, text=True,
                            check=True).stdout.splitlines()
    shapes = [list(map(int, re.search(SHAPE, line).groups())) for line in listed]
    found: dict[str, list[float]] = {}
    with subprocess.Popen([python, "-c", TORCH, str(threads), json.dumps(shapes)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1) as torch:
        for _ in range(rounds):
            ours = {tuple(map(int, re.search(SHAPE, row["name"]).groups())): row["plain_us"]
                    for row in benchmark(build / "attention_bench", pattern)}
            torch.stdin.write("\n")
            for shape, theirs in zip(shapes, json.loads(torch.stdout.readline()), strict=True):
                name = (f"{shape[0]} prompts of {shape[1]} tokens, {shape[2]}/{shape[3]} heads, "
                        f"{threads} thread(s)")
                found.setdefault(name, []).append(ours[tuple(shape)] / theirs)
        torch.stdin.close()
    return found


def lines_of(title: str, peer: str, found: dict[str, list[float]]) -> list[str]:
    lines = [f"## {title}", "", f"| shape | our time / {peer} | minimum | maximum |",
             "|---|---|---|---|"]
    lines += [f"| {name} | {statistics.median(each):.2f} | {min(each):.2f} | {max(each):.2f} |"
              for name, each in found.items()]
    return [*lines, ""]


def markdown(report: dict) -> str:
    return "\n".join([
        "# The cost of batch invariance", "",
        f"{report['date']}, {report['processor']}. Our kernels add in one fixed order for every",
        "batch; the others choose the fastest order for the shape. Medians of",
        f"{report['rounds']} interleaved rounds; below 1 the fixed order is faster.", "",
        *lines_of("Products, rows x k x n, one thread", "oneDNN's", report["products"]),
        *lines_of("Causal attention, f32, head size 64", "PyTorch's", report["attention"]),
    ]).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--python", type=path, required=True, help="interpreter with torch")
    parser.add_argument("--build", type=path,
                        default=ROOT / "build" / "release" / "loadtest" / "bench" / "kernels")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--products", default=".", help="filter of onednn_bench")
    parser.add_argument("--rounds", type=int, default=3)
    reporting.add_options(parser)
    options = parser.parse_args()
    report = reporting.heading("price of invariance") | {
        "rounds": options.rounds,
        "products": products(options.build, options.rounds, options.products), "attention": {}}
    for threads in options.threads:
        report["attention"] |= attention(options.build, options.python, threads, options.rounds)
    reporting.write(options, report, markdown(report))


if __name__ == "__main__":
    main()
