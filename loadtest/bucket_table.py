#!/usr/bin/env python3
"""Simulates what ladders gain on an H200, for the table that loadtest/gpu_check.sh measures.

    loadtest/bucket_table.py --trace azure2023_conv.csv --simulate build/release/loadtest/\\
simulate/sluice-simulate --out buckets_h200.json --table buckets_h200.md

Runs sluice-simulate over the lengths of a trace with costs that were measured on an H200
(loadtest/results/gpu/cases.jsonl): the steps of an eighth of Llama-3-8B. The costs of the other
models are scaled from them, so their rows are estimates. A step costs `base` plus `per row` for
each row that the device computes: with cuBLASLt the rows of the bucket, rounded up to a number of
rows of the library, with our kernels the tokens of the batch. A second table compares ladders
that choose from the library's numbers of rows with ladders that do not.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import textwrap

import reporting

ROOT = pathlib.Path(__file__).resolve().parents[1]
CASES = ROOT / "loadtest" / "results" / "gpu" / "cases.jsonl"
# Two measured steps of each product: one row, and 8 sequences of 512 rows.
ONE_ROW, MANY_ROWS = "1 x 1 of 1024", "8 x 512 of 512"
ROWS = 8 * 512
# The multiply-adds of a row in all layers, in millions, and the layers: of the measured model and
# of the models in loadtest/gpu/trace_cases.py.
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
# Shares of the rate of endless full batches without their fixed cost: two at which batches are
# seldom full, and an overload for the throughput.
LOADS = (0.1, 0.3, 2.0)


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
    """Returns the figures of the ladder at all loads."""
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
    figures = ("executed_efficiency", "busy_share", "p50_ms", "p99_ms")
    return {
        "base_us": base, "per_row_us": per_row, "buckets": rows[LOADS[0]]["plans"],
        "tokens_per_s": rows[LOADS[-1]]["goodput_tokens_per_s"],
        "loads": {str(load): {name: rows[load][name] for name in figures} for load in LOADS}
    }


def paragraph(text):
    return textwrap.wrap(text, 100, break_on_hyphens=False)


def grid_rows(options):
    """Returns the figures of ladders that choose from the library's numbers of rows, and of ladders
    that assume that exactly the bucket is computed.
    """
    rows = []
    for ladder in ("adaptive:16", "adaptive:64", "adaptive:256", "geometric:1.4142135623730951",
                   "hardware_aware"):
        row = {"ladder": ladder}
        for assumed in ("bucket", "library"):
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "rows.json"
                subprocess.run([
                    options.simulate, "--trace", options.trace, "--cap", "8192",
                    "--max-batch-tokens", "16384", "--order", "trace,shuffled", "--load", "0.5",
                    "--seeds", str(options.seeds), "--ladder", ladder, "--policy", "packed",
                    "--cost-of", "library", "--assume", assumed, "--capture-us", "600",
                    "--min-tokens", "1", "--half-life-us", "60000000", "--out", out
                ], check=True, stdout=subprocess.DEVNULL)
                for each in json.loads(out.read_text()):
                    row[f"{assumed}, {each['order']}"] = {
                        "waste": 1 - each["executed_efficiency"], "buckets": each["plans"],
                        "captures_ms": 0.6 * each["captures"], "p50_ms": each["p50_ms"]
                    }
        rows.append(row)
    return rows


def grid_markdown(rows):
    cells = ("bucket, trace", "library, trace", "bucket, shuffled", "library, shuffled")
    lines = [
        "", "## Ladders on the rows of the library", "",
        *paragraph(
            "The same trace with at most 16,384 tokens in a batch, at a load of 0.5; a step "
            "takes 60 us and 0.04 us per computed row, a capture 0.6 ms, the half-life is a "
            "minute. *Before*: ladders that assume that exactly the bucket is computed, as "
            "fits did. *After*: only capacities that are computed exactly. Waste is the share "
            "of the computed rows that are not tokens of the batch. Each cell: waste, buckets, "
            "ms of all captures, p50 ms."),
        "",
        "| ladder | before, trace | after, trace | before, shuffled | after, shuffled |",
        "|---|---|---|---|---|"
    ]
    for row in rows:
        lines.append(f"| {row['ladder']} | " + " | ".join(
            "{:.1%}, {:.0f}, {:.0f}, {:.3f}".format(row[cell]["waste"], row[cell]["buckets"],
                                                    row[cell]["captures_ms"], row[cell]["p50_ms"])
            for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def markdown(report):
    lines = [
        "# What ladders gain on an H200: a simulation", "",
        *paragraph(
            f"{report['date']}. **Nothing here was measured on a GPU but the costs of a step**: "
            "the simulator runs the daemon's scheduler on virtual time with the steps of an "
            "eighth of Llama-3-8B that an H200 took ([cases](gpu/cases.jsonl): one row, and 8 "
            "x 512 rows). The costs of the other two models are scaled from them: a row by its "
            "multiply-adds, the base by the weights, at least 100 us for each layer. Their "
            "rows are estimates. `loadtest/gpu_check.sh` measures the same table (parts "
            "`buckets` and `trace`) where a GPU can be had. Made by `loadtest/bucket_table.py` "
            "with the lengths of the Azure conversation trace of 2023, up to 4,096 tokens, in "
            f"random order, medians of {report['seeds']} seeds. Steps have at most 4,096 "
            "tokens. A load is a share of the rate of endless full batches without their fixed "
            "cost; the throughput is that at a load of 2."), "",
        *paragraph(
            "**What it shows**: under overload every batch is nearly full, and no ladder gains "
            f"more than {100 * (max(row['gain'] for row in report['rows']) - 1):.1f} %. Ladders "
            "gain latency and device time where batches are smaller than the largest bucket. "
            "The library has 34 numbers of rows up to 4,096, so 64 and 128 buckets are the "
            "same ladder. With our own kernels, which compute the tokens of the batch, no "
            "ladder gains anything."),
        "",
        "| model | product | ladder | buckets | base µs | µs per row | " + " | ".join(
            f"at {load}: executed, busy, p50, p99 ms" for load in LOADS[:-1])
        + " | Mtok/s | Mtok/s / one bucket |",
        "|---|---|---|---|---|---|" + "---|" * (len(LOADS) + 1)
    ]
    for row in report["rows"]:
        at = " | ".join(
            "{executed_efficiency:.3f}, {busy_share:.3f}, {p50_ms:.2f}, {p99_ms:.2f}".format(
                **row["loads"][str(load)]) for load in LOADS[:-1])
        lines.append(
            f"| {row['model']} | {row['product']} | {row['ladder']} | {row['buckets']:.0f} | "
            f"{row['base_us']:.0f} | {row['per_row_us']:.3f} | {at} | "
            f"{row['tokens_per_s'] / 1e6:.3f} | {row['gain']:.3f} |")
    return "\n".join(lines) + "\n" + grid_markdown(report["grid"])


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
    report["grid"] = grid_rows(options)
    reporting.write(options, report, markdown(report))


if __name__ == "__main__":
    main()
