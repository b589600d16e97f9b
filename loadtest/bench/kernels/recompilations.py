#!/usr/bin/env python3
"""Counts how often torch.compile compiles ops with out= for 100 sizes, and Sluice prepares plans.

    TORCH_PYTHON loadtest/bench/kernels/recompilations.py --out recompilations.json \\
        --table recompilations.md

Requires an interpreter with torch 2.5 or later, a C++ compiler, Python's headers, and builds of
sluiced and sluice. Top-k, max, norm, bmm and Cholesky write to tensors that the caller has
allocated (out=). Each is compiled for static and for dynamic shapes, at torch's default recompile
limit and with the limit raised to the number of sizes. Each arm begins without compiled code and
without a cache of it, and calls the op once for each size. The seconds of an arm include its
compilations and calls. Every result is compared with the result of the same op without the
compiler.

Sluice prepares its plans before it serves, so its arms state the plans that a daemon prepared until
it was ready, and the plans that it prepared while it served a request of each length. One arm has a
bucket for each length, and one has the default options.
"""

import argparse
import json
import logging
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
import reporting  # noqa: E402
from ready import Daemon  # noqa: E402

SIZES = tuple(range(10, 210, 2))  # of a sequence, in positions
OPS = ("top-k", "max", "norm", "bmm", "Cholesky")
ROWS, FEATURES, TOP, MATRICES = 16, 64, 8, 4


class Op:
    """An op on tensors of `inputs(n)`, which writes to tensors of `outputs(n)`."""

    def __init__(self, name, shape, run, inputs, outputs):
        self.name, self.shape = name, shape
        self.run, self.inputs, self.outputs = run, inputs, outputs


def make_ops(torch):
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    def definite(n):
        a = draw(MATRICES, n, n)
        return a @ a.transpose(1, 2) + n * torch.eye(n)

    def top_k(x, values, indices):
        torch.topk(x, TOP, dim=-1, out=(values, indices))

    def largest(x, values, indices):
        torch.max(x, dim=-1, out=(values, indices))

    def norm(x, out):
        torch.linalg.vector_norm(x, dim=-1, out=out)

    def bmm(a, b, out):
        torch.bmm(a, b, out=out)

    def cholesky(a, out):
        torch.linalg.cholesky(a, out=out)

    def pair(*shape):
        return torch.empty(shape), torch.empty(shape, dtype=torch.int64)

    rows = f"[{ROWS}, n]"
    return [
        Op("top-k", f"{TOP} of {rows}", top_k, lambda n: (draw(ROWS, n),),
           lambda n: pair(ROWS, TOP)),
        Op("max", f"of {rows}", largest, lambda n: (draw(ROWS, n),), lambda n: pair(ROWS)),
        Op("norm", f"of {rows}", norm, lambda n: (draw(ROWS, n),),
           lambda n: (torch.empty(ROWS),)),
        Op("bmm", f"[{ROWS}, n, {FEATURES}] x [{ROWS}, {FEATURES}, n]", bmm,
           lambda n: (draw(ROWS, n, FEATURES), draw(ROWS, FEATURES, n)),
           lambda n: (torch.empty(ROWS, n, n),)),
        Op("Cholesky", f"of [{MATRICES}, n, n]", cholesky, lambda n: (definite(n),),
           lambda n: (torch.empty(MATRICES, n, n),)),
    ]


class Counter:
    """A backend of torch.compile that counts the compiled graphs and their calls."""

    def __init__(self, compile_graph):
        self.graphs = self.calls = 0
        self._compile = compile_graph

    def __call__(self, graph, inputs):
        self.graphs += 1
        compiled = self._compile(graph, inputs)

        def run(*arguments):
            self.calls += 1
            return compiled(*arguments)

        return run


class Clock:
    """The seconds, and the processor seconds of this process and its compilers, since its start."""

    def __init__(self):
        self._wall, self._processor = time.perf_counter(), self._used()

    @staticmethod
    def _used():
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF,
                                                    resource.RUSAGE_CHILDREN)]
        return sum(use.ru_utime + use.ru_stime for use in uses)

    def read(self):
        return time.perf_counter() - self._wall, self._used() - self._processor


def limit_name(config):
    """Returns the option of torch._dynamo that limits how often a function is compiled."""
    return "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"


def first_line(error):
    """Returns a short text of an error without local paths."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def refusal(torch, op, dynamic):
    """Returns why torch.compile cannot compile the op as one graph; None if it can."""
    torch._dynamo.reset()
    arguments = *op.inputs(SIZES[0]), *op.outputs(SIZES[0])
    try:
        torch.compile(op.run, dynamic=dynamic, fullgraph=True)(*arguments)
    except Exception as error:  # Any error is a reason why the op is not compiled.
        return first_line(error)
    return None


def measure_arm(torch, op, dynamic, sizes):
    """Returns the counts and seconds of one arm, which calls the compiled op once for each size."""
    from torch._inductor.compile_fx import compile_fx

    torch._dynamo.reset()
    counter = Counter(compile_fx)
    compiled = torch.compile(op.run, backend=counter, dynamic=dynamic)
    seconds = processor = eager_seconds = 0.0
    not_compiled = 0
    for n in sizes:
        inputs, ours, expected = op.inputs(n), op.outputs(n), op.outputs(n)
        began = time.perf_counter()
        op.run(*inputs, *expected)
        eager_seconds += time.perf_counter() - began
        calls, clock = counter.calls, Clock()
        compiled(*inputs, *ours)
        wall, used = clock.read()
        seconds, processor = seconds + wall, processor + used
        not_compiled += counter.calls == calls
        for got, wanted in zip(ours, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
    return {"compilations": counter.graphs, "not_compiled": not_compiled, "seconds": seconds,
            "processor_seconds": processor, "eager_seconds": eager_seconds}


def fresh_cache():
    """Returns a context with an empty cache of compiled code."""
    from torch._inductor import utils

    return getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache


def arms_of(ops, default, raised):
    """Yields (op, dynamic, limit). The arms at torch's own limit come first, because they are much
    shorter."""
    for limit in (default, raised):
        for op in ops:
            for dynamic in (False, True):
                yield op, dynamic, limit


def measure_torch(report, sizes, save):
    """Adds the arms that the report lacks, and calls save() after each."""
    import torch
    from torch._dynamo import config
    from torch._inductor import config as inductor_config

    torch.set_num_threads(1)
    inductor_config.fx_graph_cache = False
    inductor_config.compile_threads = 1
    # At the limit torch logs a warning; the table has the count.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    limit, context = limit_name(config), fresh_cache()
    default = getattr(config, limit)
    report["torch"] = {"version": torch.__version__, "limit": limit, "default_limit": default,
                       "arms": report.get("torch", {}).get("arms", [])}
    arms = report["torch"]["arms"]
    measured = {(arm["op"], arm["dynamic"], arm["limit"]) for arm in arms}
    with context():  # loads the compiler, which the first arm would pay for otherwise
        torch.compile(lambda x: x + 1, dynamic=False)(torch.ones(8))
    for op, dynamic, most in arms_of(make_ops(torch), default, len(sizes)):
        if (op.name, dynamic, most) in measured:
            continue
        with context():
            refused = refusal(torch, op, dynamic)
        setattr(config, limit, most)
        with context():
            arm = measure_arm(torch, op, dynamic, sizes)
        setattr(config, limit, default)
        arms.append({"op": op.name, "shape": op.shape, "dynamic": dynamic, "limit": most,
                     "refused": refused, **arm})
        print(arms[-1], file=sys.stderr, flush=True)
        save()


def measure_plans(options, name, sizes, *flags):
    """Serves a request of each size, one at a time, and returns the counts of prepared plans."""
    draws = random.Random(1)
    daemon = Daemon(options.sluiced, options.model, "--engine.kv.prefix-reuse=false",
                    "--engine.ladder.warm-up=60s", *flags)
    try:
        captures = "sluice_plan_captures_total"
        before = daemon.metric(captures)
        seconds = daemon.metric("sluice_plan_capture_seconds_sum")
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for n in sizes:
                ids = [draws.randrange(256) for _ in range(n)]
                call = {"model": "m", "ids": ids, "max_tokens": 1}
                file.write(json.dumps(call) + "\n")
            file.flush()
            subprocess.run([options.sluice, "infer", "--server", daemon.grpc, "--file", file.name,
                            "--concurrency", "1", "--json"], check=True, stdout=subprocess.DEVNULL)
        lookups = "sluice_plan_lookups_total"
        return {"ladder": name, "plans": int(before), "seconds": seconds,
                "plans_while_serving": int(daemon.metric(captures) - before),
                "batches": int(daemon.metric("sluice_bucket_batches_total")),
                "misses": int(daemon.metric(lookups, 'result="miss"'))}
    finally:
        daemon.stop()


def measure_sluice(options, sizes):
    fixed = ",".join(map(str, sizes))
    return [
        measure_plans(options, "a bucket for each length", sizes,
                      "--engine.ladder.strategy=fixed", f"--engine.ladder.fixed-tokens={fixed}",
                      f"--engine.ladder.max-buckets={len(sizes)}",
                      f"--engine.batch.max-batch-tokens={sizes[-1]}"),
        measure_plans(options, "default options", sizes),
    ]


def torch_row(arm, sizes):
    shapes = "dynamic" if arm["dynamic"] else "static"
    compiled = "no: " + arm["refused"] if arm["refused"] else "yes"
    return [arm["op"], arm["shape"], shapes, arm["limit"], compiled, arm["compilations"],
            max(0, arm["compilations"] - 1), f"{arm['not_compiled']} of {sizes}",
            f"{arm['seconds']:.2f}", f"{arm['processor_seconds']:.2f}",
            f"{1e3 * arm['eager_seconds']:.1f}"]


def plan_row(arm):
    return [arm["ladder"], arm["plans"], f"{1e3 * arm['seconds']:.2f}",
            arm["plans_while_serving"], arm["batches"], arm["misses"]]


def missing_arms(peer, sizes):
    """Returns the arms that a stopped run has not measured, in words."""
    measured = {(arm["op"], arm["dynamic"], arm["limit"]) for arm in peer["arms"]}
    wanted = arms_of(OPS, peer["default_limit"], sizes)
    return [f"{op} ({'dynamic' if dynamic else 'static'}, limit {limit})"
            for op, dynamic, limit in wanted if (op, dynamic, limit) not in measured]


def lines_of(head, rows):
    return ["| " + " | ".join(map(str, row)) + " |"
            for row in (head, ["---"] * len(head), *rows)] + [""]


def table(report):
    sizes, peer = report["sizes"], report["torch"]
    arms = sorted(peer["arms"], key=lambda arm: OPS.index(arm["op"]))
    missing = missing_arms(peer, len(sizes))
    return "\n".join([
        "# torch.compile for 100 sizes, and Sluice's plans for 100 lengths", "",
        f"{report['date']}, {report['processor']}, torch {peer['version']}, f32, one thread.",
        "Made by `loadtest/bench/kernels/recompilations.py`. The sizes n are "
        f"{sizes[0]}, {sizes[1]}, ... {sizes[-1]}.", "",
        "## torch.compile with `out=`", "",
        "An arm calls the op once for each size. Its seconds include all compilations and calls. "
        "Processor seconds include the C++ compiler, and depend little on other programs that use "
        "the machine. If an op is compiled more often than "
        f"`torch._dynamo.config.{peer['limit']}` (default {peer['default_limit']}), torch runs "
        "further sizes without the compiler. All results were compared with the results of the "
        "same calls without the compiler.", "",
        *lines_of(["op", "shape", "shapes", "limit", "one graph", "compilations", "recompilations",
                   "sizes run without the compiler", "s", "processor s",
                   "ms of all calls without the compiler"],
                  (torch_row(arm, len(sizes)) for arm in arms)),
        *([f"Not measured: {', '.join(missing)}.", ""] if missing else []),
        "## Sluice", "",
        f"The model is `{report['model']}`. One request of each length is served, one at a time. A "
        "plan is of the whole model. On a CPU it has only the offsets of its buffers; on a GPU it "
        "is a captured graph, and its time is in [gpu](gpu/README.md).", "",
        *lines_of(["ladder", "plans prepared until ready", "ms for all of them",
                   "plans prepared while serving", "batches", "batches that missed their plan"],
                  map(plan_row, report["plans"])),
    ])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("models/demo"))
    parser.add_argument("--sluiced", default="build/release/server/sluiced")
    parser.add_argument("--sluice", default="build/release/client/sluice")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="the first sizes only")
    parser.add_argument("--resume", action="store_true",
                        help="measure only the arms that the file of --out lacks")
    reporting.add_options(parser)
    options = parser.parse_args()
    sizes = SIZES[:options.sizes]
    report = {**reporting.heading("recompilations"), "model": options.model.name,
              "sizes": list(sizes)}
    if options.resume:
        report |= json.loads(options.out.read_text())
    if "plans" not in report:
        report["plans"] = measure_sluice(options, sizes)
    measure_torch(report, sizes, lambda: reporting.save(options, report))
    reporting.write(options, report, table(report))


if __name__ == "__main__":
    main()
