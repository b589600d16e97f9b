#!/usr/bin/env python3
"""Counts the kernels that PyTorch's compiler makes for exclusive self attention (XSA) on a CPU.

    TORCH_PYTHON loadtest/bench/kernels/torch_xsa_kernels.py --out loadtest/results/xsa_kernels

writes xsa_kernels.json and xsa_kernels.md. Requires an interpreter with torch 2.5 or later and a
C++ compiler. XSA is written in the two forms of pytorch issue 181108: values that unsqueeze
broadcasts to the query heads of their group, and values that are expanded to all query heads. Each
form is counted without compiling (calls of kernels that compute, without views), and compiled for
static and for dynamic shapes, both by itself and after scaled_dot_product_attention, whose own
kernel is not counted. The first shape compiles, and two more shapes show how often it compiles
again. Times are medians over rounds in which all arms alternate, on one thread.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch._inductor import config as inductor_config
from torch._inductor import metrics
from torch._inductor.utils import run_and_get_code

LOADTEST = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(LOADTEST), str(LOADTEST / "gpu")]
import kernel_counts  # noqa: E402
import reporting  # noqa: E402

EPS = 1e-6
# Batch, tokens, query heads, KV heads, head size.
SHAPES = [(16, 256, 8, 2, 64), (7, 190, 8, 2, 64), (3, 333, 8, 2, 64)]


def diagnostics(dot, y):
    cos_sim = dot.squeeze(-1).abs()
    return cos_sim, cos_sim / y.norm(dim=-1).clamp_min(EPS)


def by_unsqueeze(y, v):
    """Returns z, cos_sim and proj_frac of y [b, t, q heads, d] and v [b, t, kv heads, d]."""
    b, t, kv_heads, d = v.shape
    grouped = y.view(b, t, kv_heads, y.shape[2] // kv_heads, d)
    unit = F.normalize(v, dim=-1, eps=EPS).unsqueeze(3)
    dot = (grouped * unit).sum(-1, keepdim=True)
    return (grouped - dot * unit).view_as(y), *diagnostics(dot, grouped)


def by_expand(y, v):
    b, t, kv_heads, d = v.shape
    group = y.shape[2] // kv_heads
    unit = F.normalize(v, dim=-1, eps=EPS)
    unit = unit.unsqueeze(3).expand(b, t, kv_heads, group, d).reshape(b, t, y.shape[2], d)
    dot = (y * unit).sum(-1, keepdim=True)
    return y - dot * unit, *diagnostics(dot, y)


def behind_attention(form):
    def run(q, k, v):
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        y = F.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=True)
        return form(y.transpose(1, 2).contiguous(), v)

    return run


def tensors(shape, with_attention, generator):
    b, t, q_heads, kv_heads, d = shape
    draw = lambda heads: torch.randn(b, t, heads, d, generator=generator)  # noqa: E731
    return [draw(q_heads), draw(kv_heads), draw(kv_heads)] if with_attention else [
        draw(q_heads),
        draw(kv_heads),
    ]


def count_compiled(function, all_arguments, dynamic):
    """Returns the generated functions for the first shape, the loops in them, and how often further
    shapes compile again."""
    torch._dynamo.reset()
    metrics.reset()
    compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
    _, code = run_and_get_code(compiled, *all_arguments[0])
    kernels = sum(map(kernel_counts.calls_in, code))
    loops = metrics.generated_kernel_count
    torch._dynamo.utils.counters.clear()
    for arguments in all_arguments[1:]:
        expected = function(*arguments)
        for ours, theirs in zip(compiled(*arguments), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    again = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {"kernels": kernels, "loops": loops, "compiled_again": again}


def seconds(function, arguments):
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def measure(arms, rounds):
    """Returns the median seconds of each arm on the first shape; the arms alternate."""
    times = {name: [] for name in arms}
    for number in range(rounds + 2):
        for name, (function, arguments) in arms.items():
            took = seconds(function, arguments)
            if number >= 2:
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


def run(rounds):
    generator = torch.Generator().manual_seed(1)
    rows = []
    for with_attention in (False, True):
        arguments = [tensors(shape, with_attention, generator) for shape in SHAPES]
        arms = {}
        for name, form in (("unsqueeze", by_unsqueeze), ("expand", by_expand)):
            function = behind_attention(form) if with_attention else form
            eager = kernel_counts.eager(function, arguments[0])
            row = {"form": name, "behind_attention": with_attention}
            row["eager"] = {"kernels": len(eager)}
            arms[name, "eager"] = function, arguments[0]
            for mode, dynamic in (("static", False), ("dynamic", True)):
                row[mode] = count_compiled(function, arguments, dynamic)
                # Compiled again for the times, because each shape seen adds a guard.
                torch._dynamo.reset()
                arms[name, mode] = torch.compile(function, dynamic=dynamic), arguments[0]
            rows.append(row)
        for (name, mode), median in measure(arms, rounds).items():
            for row in rows:
                if (row["form"], row["behind_attention"]) == (name, with_attention):
                    row[mode]["seconds"] = median
    return rows


def markdown(made):
    lines = [
        "# Kernels of XSA in Sluice and in PyTorch's compiler",
        "",
        f"{made['date']}, {made['processor']}, torch {made['torch']}, one thread, f32. Made by",
        "`loadtest/bench/kernels/torch_xsa_kernels.py`. Outputs: the excluded values and both",
        f"diagnostics. Times are medians of {made['rounds']} rounds for "
        "{} sequences of {} tokens, {} query and {} KV heads of {}.".format(*SHAPES[0]),
        "",
        "Sluice has no kernel for XSA with static or dynamic shapes. The attention kernel computes",
        "it in its epilogue. A plan reads sizes at run time, so new shapes compile nothing.",
        "",
        "Kernels are functions that a step calls. On a CPU, PyTorch's compiler makes one function",
        "of several loops; on a GPU it makes one kernel of each loop unless it can fuse them.",
        "",
        "| form | computed | how | kernels | loops in them | compiled again for 2 shapes | ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in made["rows"]:
        what = "behind attention" if row["behind_attention"] else "alone"
        for mode in ("eager", "static", "dynamic"):
            arm = row[mode]
            loops, again = arm.get("loops", "-"), arm.get("compiled_again", "-")
            lines.append(
                f"| {row['form']} | {what} | {mode} | {arm['kernels']} | {loops} | {again} | "
                f"{1e3 * arm['seconds']:.3f} |"
            )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="without .json, .md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    inductor_config.fx_graph_cache = False  # a cached graph would count no kernels
    made = {
        **reporting.heading("xsa kernels"),
        "torch": torch.__version__,
        "rounds": arguments.rounds,
        "shapes": SHAPES,
        "rows": run(arguments.rounds),
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(markdown(made))
    print(markdown(made))


if __name__ == "__main__":
    main()
