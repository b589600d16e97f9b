#!/usr/bin/env python3
"""Simulates what ladders gain on an H200, for the table that loadtest/gpu_check.sh measures.

    loadtest/bucket_table.py --trace azure2023_conv.csv --simulate build/release/loadtest/\\
simulate/sluice-simulate --out buckets_h200.json --table buckets_h200.md

Runs sluice-simulate over the lengths of a trace with costs that were measured on an H200
(loadtest/results/gpu/cases.jsonl): the steps of an eighth of Llama-3-8B. The costs of the other
models are scaled from them, so their rows are estimates. A step costs `base` plus `per row` for each
row that the device computes: with cuBLASLt the rows of the bucket, rounded up to a number of rows of
the library, with our kernels the tokens of the batch.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import reporting

ROOT = pathlib.Path(__file__).resolve().parents[1]
CASES = ROOT / "loadtest" / "results" / "gpu" / "cases.jsonl"
# Two measured steps of each product: one row, and 8 sequences of 512 rows.
ONE_ROW, MANY_ROWS = "1 x 1 of 1024", "8 x 512 of 512"
ROWS = 8 * 512
# The multiply-adds of a row in all layers, in millions, and the layers; of the measured model and of
# the models in loadtest/gpu/trace_cases.py.
MEASURED = {"multiply_adds": 872, "layers": 4}
MODELS = {
    "125M": {"multiply_adds": 113, "layers": 12, "ladders": "all"},
    "a quarter of 1B": {"multiply_adds": 243, "layers": 4, "ladders": "two"},
    "an eighth of 8B": {**MEASURED, "ladders": "two"},
}
LADDERS = {
    "one bucket": ("fixed:4096", []),
    "16 buckets": ("hardware_aware", ["--max-buckets", "16"]),
    "64 buckets": ("hardware_aware", ["--max-buckets", "64"]),
    "128 buckets": ("hardware_aware", ["--max-buckets", "128"]),
    "geometric": ("geometric:1.4142135623730951", []),
    "adaptive": ("adaptive", ["--max-buckets", "256"]),
}
ROWS_OF = {"cublaslt": "library", "own": "computed"}
LOADS = (0.85, 2.0)  # for latencies, and for the throughput of an overloaded device


def measured_us(product):
    """Returns the microseconds of the two measured steps."""
    times = {}
    for line in CASES.read_text().splitlines():
        for each in json.loads(line).get("measurements", []):
            if each["name"] in (f"decode, {product}", f"prefill, {product}"):
                times[each["shape"]] = each["value"]
    return times[ONE_ROW], times[MANY_ROWS]


def costs(product, model):
    """Returns the base and the cost of a row of a step, in microseconds. Both are scaled from the
    measured model: a row by its multiply-adds; the base by the weights that are read, but at least
    by the number of layers at 100 us each.
    """
    one, many = measured_us(product)
    per_row = (many - one) / (ROWS - 1)
    share = model["multiply_adds"] / MEASURED["multiply_adds"]
    base = max((one - per_row) * share, 100.0 * model["layers"])
    return base, per_row * share


def simulate(options, product, model, ladder):
    """Returns the rows of both loads."""
    base, per_row = costs(product, model)
    name, flags = LADDERS[ladder]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        subprocess.run([
            options.simulate, "--trace", options.trace, "--cap", "4096", "--max-batch-tokens",
            "4096", "--order", "shuffled", "--load", ",".join(map(str, LOADS)), "--seeds",
            str(options.seeds), "--ladder", name, "--policy", "packed", "--cost-base-us",
            f"{base:.3f}", "--cost-per-token-us", f"{per_row:.6f}", "--cost-of", ROWS_OF[product],
            "--capture-us", "600", "--min-tokens", "1", "--half-life-us", "60000000",
            "--review-interval-us", "10000000", "--out", out, *flags
        ], check=True, stdout=subprocess.DEVNULL)
        rows = {row["load"]: row for row in json.loads(out.read_text())}
    calm, busy = (rows[load] for load in LOADS)
    return {
        "base_us": base, "per_row_us": per_row, "buckets": calm["plans"],
        "executed_efficiency": busy["executed_efficiency"],
        "tokens_per_s": busy["goodput_tokens_per_s"], "p50_ms": calm["p50_ms"],
        "p99_ms": calm["p99_ms"]
    }


def markdown(report):
    lines = [
        "# What ladders gain on an H200: a simulation", "",
        f"{report['date']}. **Nothing here was measured on a GPU but the costs of a step**: the",
        "simulator runs the daemon's scheduler on virtual time with the steps of an eighth of",
        "Llama-3-8B that an H200 took ([cases](gpu/cases.jsonl): one row, and 8 x 512 rows). The costs",
        "of the other two models are scaled from them: a row by its multiply-adds, the base by the",
        "weights, at least 100 us for each layer. Their rows are estimates. `loadtest/gpu_check.sh`",
        "measures the same table (parts `buckets` and `trace`) where a GPU can be had. Made by",
        "`loadtest/bucket_table.py` with the lengths of the Azure conversation trace of 2023, up to",
        f"4,096 tokens, in random order, medians of {report['seeds']} seeds. Steps have at most 4,096",
        "tokens. Throughput at twice the capacity, latencies at a load of 0.85.", "",
        "| model | product | ladder | buckets | base µs | µs per row | Mtok/s | p50 ms | p99 ms | "
        "executed efficiency | Mtok/s / one bucket |",
        "|---|---|---|---|---|---|---|---|---|---|---|"
    ]
    for row in report["rows"]:
        lines.append(
            f"| {row['model']} | {row['product']} | {row['ladder']} | {row['buckets']:.0f} | "
            f"{row['base_us']:.0f} | {row['per_row_us']:.3f} | {row['tokens_per_s'] / 1e6:.3f} | "
            f"{row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['executed_efficiency']:.3f} | "
            f"{row['gain']:.3f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=pathlib.Path, required=True)
    parser.add_argument("--simulate", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    reporting.add_options(parser)
    options = parser.parse_args()
    report = {**reporting.heading("bucket_table"), "seeds": options.seeds, "rows": []}
    for name, model in MODELS.items():
        for product in ROWS_OF:
            chosen = LADDERS if model["ladders"] == "all" else ("one bucket", "adaptive")
            first = None
            for ladder in chosen:
                row = {"model": name, "product": product, "ladder": ladder,
                       **simulate(options, product, model, ladder)}
                first = first or row["tokens_per_s"]
                row["gain"] = row["tokens_per_s"] / first
                report["rows"].append(row)
    reporting.write(options, report, markdown(report))


if __name__ == "__main__":
    main()
