#!/usr/bin/env python3
"""Estimates the time of each timed case of gpu_check on an H200 (loadtest/gpu/roofline.json).

These are predictions, not measurements. A case takes at least the longest of

  memory    its bytes, times the ratio of counted sectors (emulator) to ideal ones, at the highest
            rate of reads; or, if few blocks have work, at the rate that their processors can load.
            A copy is slower than reads: 3.36 TB/s were measured
  products  its operations, including the rows that fill up tiles, at the peak of the tensor cores
            on the processors that have work (int8 has twice the rate of bfloat16)
  issue     its instructions at 4 per cycle and processor: per matrix product in the hot loop
            (machine code), or else per byte (emulator)
  shared    its shared-memory passes at 1 per cycle and processor: per matrix product or per byte
            (emulator)

The model leaves out the cost of a launch, latencies, and the overlap of these terms. A figure below
its estimate is therefore a surprise; a figure far above it shows the effects that the model leaves
out. A case without counters, such as a layer of the library or a whole step, has only the bound of
its ideal bytes and operations.

`gpu_bench work` prints the cases with their launches on an H200. The counters come from
tests/kernels/cuda/costs.json and kernels/cuda/sass.json. --check writes nothing and fails if the
committed file is out of date.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "loadtest/gpu/roofline.json"

# An H200. The fastest reads that were measured there reach 4.5 TB/s (loadtest/results/gpu: decode
# by cuDNN, the library's head product). The rate of operations is in the note in predictions.json.
# At this clock, 132 processors of 4096 operations per cycle reach NVIDIA's 989 TFLOP/s in bfloat16.
DEVICE = {
    "name": "NVIDIA H200", "processors": 132, "bytes_per_second": 4.5e12,
    "operations_per_second": 790e12, "cycles_per_second": 1.83e9,
    "instructions_per_cycle": 4, "passes_per_cycle": 1, "bytes_per_cycle": 64,
}
# Operations of a warp's product in bfloat16, unless it is mma.m16n8k16; int8 has twice as many.
# For heads of 128, attention has two products of 64 columns for each one of 128.
TILE_COLUMNS = {"Tiny": 32, "Small": 64, "Medium": 128, "Large": 256}  # of tuned products
PRODUCT_OPERATIONS = {**{f"HopperProjection{tiles}": 2 * 16 * columns * 16
                         for tiles, columns in TILE_COLUMNS.items()},
                      "HopperAttention": 2 * 16 * (2 * 64 + 128) // 3 * 16}
MMA_OPERATIONS = 2 * 16 * 8 * 16
# The smallest number of rows that a product computes.
FRAGMENT_ROWS = {**{f"HopperProjection{tiles}": 64 for tiles in TILE_COLUMNS},
                 "HopperAttention": 64, "Projection": 8, "ProjectionLarge": 8,
                 "ProjectionFewRows": 8, "GatedFewRows": 8, "ProjectionPlaced": 8}

# Where to find a case's counters. The case's name has the suffix of its portable kernel's tiles
# appended, and has no ", XSA". The row of costs.json and the kernel of sass.json are both
# for widths that allow wide accesses.
COUNTERS = [
    ("position-wise projection, hopper", "HopperProjection bf16 {tiles}",
     "HopperProjection<{tiles}>"),
    ("dense projection, hopper", "HopperProjection bf16 {tiles}", "HopperProjection<{tiles}>"),
    ("position-wise projection, int8", "Int8 bf16: Projection",
     "Projection<BFloat16, BFloat16, signed char, SmallTile, true>"),
    ("dense projection, int8", "Int8 bf16: Projection",
     "Projection<BFloat16, BFloat16, signed char, SmallTile, true>"),
    ("dense projection, int8, large tiles", "Int8 bf16 of many rows: ProjectionLarge",
     "Projection<BFloat16, BFloat16, signed char, LargeTile, true>"),
    ("dense projection, int8, 64 rows", "Int8 bf16 of 64 rows: ProjectionFewRows",
     "FewRows<BFloat16, BFloat16, signed char>"),
    ("position-wise projection, int8, few rows", "Int8 bf16 of few rows: ProjectionFewRows",
     "FewRows<BFloat16, BFloat16, signed char>"),
    ("dense projection, int8, few rows", "Int8 bf16 of few rows: ProjectionFewRows",
     "FewRows<BFloat16, BFloat16, signed char>"),
    ("position-wise projection", "Projection bf16",
     "Projection<BFloat16, BFloat16, BFloat16, SmallTile, true>"),
    ("position-wise projection, few rows", "Projection bf16 of a row by position",
     "FewRows<BFloat16, BFloat16, BFloat16>"),
    ("dense projection", "Projection bf16",
     "Projection<BFloat16, BFloat16, BFloat16, SmallTile, true>"),
    ("dense projection, large tiles", "Projection bf16 of many rows",
     "Projection<BFloat16, BFloat16, BFloat16, LargeTile, true>"),
    ("dense projection, few rows", "Projection bf16 of few rows",
     "FewRows<BFloat16, BFloat16, BFloat16>"),
    ("dense projection, 64 rows", "Projection bf16 of 64 rows",
     "FewRows<BFloat16, BFloat16, BFloat16>"),
    ("gated projection, few rows", "GatedProjection bf16", "GatedFewRows<BFloat16, BFloat16>"),
    ("gated projection, 64 rows", "GatedProjection bf16 of 64 rows",
     "GatedFewRows<BFloat16, BFloat16>"),
    ("gated projection, two kernels, few rows", "Projection bf16 of few rows",
     "FewRows<BFloat16, BFloat16, BFloat16>"),
    ("gated projection, two kernels, 64 rows", "Projection bf16 of 64 rows",
     "FewRows<BFloat16, BFloat16, BFloat16>"),
    ("adapter products", "ProjectionPlaced bf16", "Placed<BFloat16, true>"),
    ("head projection", "Projection bf16 to f32",
     "Projection<BFloat16, float, BFloat16, SmallTile, true>"),
    ("head projection, few rows", "Projection bf16 to f32 of few rows",
     "FewRows<BFloat16, float, BFloat16>"),
    ("head projection, large tiles", "Projection bf16 to f32 of many rows",
     "Projection<BFloat16, float, BFloat16, LargeTile, true>"),
    ("attention, prefill, hopper", "HopperAttention bf16 {dim}", "HopperAttention<{dim}>"),
    ("attention, prefill", "Attention bf16 {dim}",
     "Attention<BFloat16, {dim}, {pieces}, bulk, no shaped>"),
    ("attention, decode", "Attention bf16 {dim} decode",
     "Attention<BFloat16, {dim}, {pieces}, bulk, no shaped>"),
    ("attention, short", "Attention bf16 {dim}",
     "Attention<BFloat16, {dim}, {pieces}, bulk, no shaped>"),
    ("copy (mix)", "Mix bf16", None),
    ("activation, gated", "Activate bf16", None),
    ("choice of experts", "Route: ChooseExperts", None),
    ("copies for experts", "Experts bf16: CopyToPlaces", None),
    ("sum of experts", "Experts bf16: Combine", None),
    ("RMSNorm with residual", "RmsNorm bf16", None),
    ("LayerNorm", "LayerNorm bf16", None),
    ("embedding", "Embed bf16", None),
    ("RoPE and KV write", "RopeAndStore bf16", None),
    ("XSA, norm form", "ExcludeSelf bf16", None),
    ("XSA, squared form", "ExcludeSelf bf16", None),
]

TILE_SUFFIXES = {"ProjectionLarge": ", large tiles", "ProjectionFewRows": ", few rows",
                 "GatedFewRows": ", few rows"}

# The rows of a piece of keys, and the number of pieces in flight, by head dimension, if a block may
# use the shared memory of an H200 (kernels/cuda/attention.cu).
PIECES = {"64": "64, 4", "128": "64, 4", "256": "64, 3"}


class Failure(Exception):
    """A message for the user."""


def read_counters():
    costs = {row["name"]: row
             for row in json.loads((ROOT / "tests/kernels/cuda/costs.json").read_text())}
    sass = {}
    for source in json.loads((ROOT / "kernels/cuda/sass.json").read_text())["sources"].values():
        for kernel, figures in source["kernels"].items():
            sass[kernel] = figures.get("sm_90") or figures.get("sm_90a")
    return costs, sass


def counters_of(name, shape, launched, costs, sass):
    """Returns the cost row and the machine code of a case's kernel; either may be None."""
    dim = re.search(r"heads of (\d+)", shape)
    name = name.removesuffix(", XSA")
    suffix = TILE_SUFFIXES.get(launched, "")
    name += ", 64 rows" if suffix == ", few rows" and " B64 " in shape else suffix
    for case, row, kernel in COUNTERS:
        if name == case:
            dims = {"dim": dim[1] if dim else "", "pieces": PIECES.get(dim[1]) if dim else "",
                    "tiles": launched.removeprefix("HopperProjection")}
            code = sass.get((kernel or "").format(**dims))
            if kernel and not code:
                missing = kernel.format(**dims)
                raise Failure(f"{name}; {shape}: sass.json has no {missing} for sm_90")
            return costs.get(row.format(**dims)), code
    return None, None


def filled_up(name, shape, kernel):
    """Returns computed operations / needed operations. They differ because tiles are filled up."""
    if found := re.match(r"L\d+ B(\d+) ", shape):
        rows, fragment = int(found[1]), FRAGMENT_ROWS.get(kernel, 16)
    elif found := re.match(r"\d+ x (\d+) of \d+, (\d+)/(\d+) heads", shape):
        count, heads, kv_heads = map(int, found.groups())
        rows, fragment = count * heads // kv_heads, FRAGMENT_ROWS.get(kernel, 16)
    else:
        return 1
    return -(-rows // fragment) * fragment / rows


def estimate(case, costs, sass):
    name, shape = case["case"].split("; ", 1)
    device, cycle = DEVICE, DEVICE["cycles_per_second"]
    launches = case["launches"]
    busy = min(max((each["blocks"] for each in launches), default=device["processors"]),
               device["processors"])
    kernel = launches[0]["kernel"] if launches else ""
    row, code = counters_of(name, shape, kernel, costs, sass)
    excess = row["sectors"] / row["ideal_sectors"] if row and row.get("ideal_sectors") else 1
    loads = min(device["bytes_per_second"], busy * device["bytes_per_cycle"] * cycle)
    seconds = {"memory": case["bytes"] * excess / loads}
    if case["tensor_cores"] and case["operations"]:
        # Counted as bfloat16 operations; an int8 product does twice the work at the same rate.
        operations = (case["operations"] * filled_up(name, shape, kernel) /
                      (2 if case["int8"] else 1))
        seconds["products"] = (operations / device["operations_per_second"] *
                               device["processors"] / busy)
        products = operations / PRODUCT_OPERATIONS.get(kernel, MMA_OPERATIONS)
        if code and "hot_hmma" in code:
            seconds["issue"] = (products * code["hot_instructions"] / code["hot_hmma"] /
                                (device["instructions_per_cycle"] * busy * cycle))
        if row and row.get("products"):
            seconds["shared"] = (products * row.get("passes", 0) / row["products"] /
                                 (device["passes_per_cycle"] * busy * cycle))
    elif row:
        share = case["bytes"] / row["bytes"]
        seconds["issue"] = (row["instructions"] * share /
                            (device["instructions_per_cycle"] * busy * cycle))
        seconds["shared"] = (row.get("passes", 0) * share /
                             (device["passes_per_cycle"] * busy * cycle))
    bound = max(seconds, key=seconds.get)
    return {"id": case["case"], "us": float(f"{1e6 * seconds[bound]:.3g}"), "bound": bound,
            "counters": bool(row)}


def roofline(program):
    done = subprocess.run([program, "work"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{program} work: status {done.returncode}\n{done.stderr}")
    costs, sass = read_counters()
    cases = [estimate(json.loads(line), costs, sass) for line in done.stdout.splitlines()]
    return {"note": "Bounds by loadtest/gpu/roofline.py, which explains them.", "device": DEVICE,
            "cases": cases}


def render(table):
    head = json.dumps({key: value for key, value in table.items() if key != "cases"}, indent=1)
    rows = ",\n".join(f"  {json.dumps(each)}" for each in table["cases"])
    return f"{head[:-2]},\n \"cases\": [\n{rows}\n ]\n}}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build/release/loadtest/gpu/gpu_bench_emulated")
    options = parser.parse_args()
    text = render(roofline(options.program))
    if not options.check:
        OUT.write_text(text)
        print(f"wrote {OUT.relative_to(ROOT)}")
    elif not OUT.exists() or OUT.read_text() != text:
        raise Failure(f"{OUT.relative_to(ROOT)} is out of date; run loadtest/gpu/roofline.py")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(str(failure))
