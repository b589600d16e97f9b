"""Times PyTorch on the cases of gpu_bench, eager and compiled; prints one JSON object.

Names and shapes are those of gpu_bench, by which the report matches the measurements. Every peer is
checked against the eager form in higher precision before it is timed.
"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from triton.testing import do_bench

CASES = []


def case(function):
    CASES.append(function)
    return function


class Report:
    def __init__(self, seconds):
        self.measurements = []
        self.problems = []
        self.give_up = time.monotonic() + seconds

    def late(self):
        return time.monotonic() > self.give_up

    def time(self, name, shape, peer, run, check=None):
        """Times `run`. `check` is (expected in float64, tolerance of the relative error)."""
        if self.late():
            self.problems.append(f"{name}, {shape}, {peer}: not measured: no time")
            return
        try:
            out = run()
            if check is not None:
                expected, tolerance = check
                error = ((out.double() - expected).norm() / expected.norm()).item()
                if not error <= tolerance:
                    self.problems.append(f"{name}, {shape}, {peer}: relative error {error:.3g}")
                    return
            self.measurements.append(
                {"part": "torch", "name": name, "shape": shape, "peer": peer, "unit": "us",
                 "value": 1e3 * do_bench(run, warmup=10, rep=50, return_mode="median")})
        except Exception as error:  # a failure is reported; the other peers go on
            self.problems.append(
                f"{name}, {shape}, {peer}: {type(error).__name__}: {str(error)[:200]}"
            )
            torch._dynamo.reset()


def random(*shape, dtype=torch.bfloat16):
    return torch.rand(*shape, device="cuda", dtype=torch.float32).mul_(2).sub_(1).to(dtype)


@case
def ceilings(report):
    source = random(1 << 28)
    target = torch.empty_like(source)
    report.time(
        "ceiling of memory", f"{source.numel()} bf16", "copy_", lambda: target.copy_(source)
    )
    a, b = random(8192, 8192), random(8192, 8192)
    report.time("ceiling of products", "8192 x 8192 x 8192 bf16", "matmul", lambda: a @ b)


@case
def position_wise(report):
    positions, width = 256, 512
    weight = random(positions, width, width)
    bias = random(width)
    compiled = torch.compile(lambda x: torch.einsum("bld,lde->ble", x, weight) + bias)
    for rows in (1, 4, 8, 16, 64):
        shape = f"L{positions} B{rows} {width} x {width} bf16"
        x = random(rows, positions, width)
        expected = torch.einsum("bld,lde->ble", x.double(), weight.double()) + bias.double()
        by_position = x.transpose(0, 1).contiguous()
        name = "position-wise projection"
        check = expected, 1e-2
        report.time(name, shape, "einsum, eager",
                    lambda: torch.einsum("bld,lde->ble", x, weight) + bias, check)
        report.time(
            name,
            shape,
            "bmm, eager",
            lambda: torch.baddbmm(bias, by_position, weight),
            (expected.transpose(0, 1), 1e-2),
        )
        report.time(name, shape, "einsum, compiled", lambda: compiled(x), check)


@case
def dense(report):
    weight = random(4096, 4096)
    bias = random(4096)
    for rows in (64, 1024, 8192):
        x = random(rows, 4096)
        report.time("dense projection", f"L1 B{rows} 4096 x 4096 bf16", "addmm, eager",
                    lambda: torch.addmm(bias, x, weight))


def exclude_norm(y, v):
    v = v.repeat_interleave(y.shape[1] // v.shape[1], dim=1)
    unit = F.normalize(v.float(), dim=-1, eps=1e-6)
    y32 = y.float()
    return (y32 - (y32 * unit).sum(-1, keepdim=True) * unit).to(y.dtype)


def exclude_squared(y, v):
    v32 = v.repeat_interleave(y.shape[1] // v.shape[1], dim=1).float()
    y32 = y.float()
    share = (y32 * v32).sum(-1, keepdim=True) / v32.square().sum(-1, keepdim=True).clamp_min(1e-6)
    return (y32 - share * v32).to(y.dtype)


@case
def xsa(report):
    rows = 64 * 1024
    y, v = random(rows, 8, 64), random(rows, 2, 64)
    for name, form in (("XSA, norm form", exclude_norm), ("XSA, squared form", exclude_squared)):
        shape = f"{rows} rows, 8/2 heads of 64 bf16"
        expected = form(y.double(), v.double()).double()
        check = expected, 1e-2
        report.time(name, shape, "eager", lambda: form(y, v), check)
        static = torch.compile(form, dynamic=False)
        report.time(name, shape, "compiled, static", lambda: static(y, v), check)
        dynamic = torch.compile(form, dynamic=True)
        report.time(name, shape, "compiled, dynamic", lambda: dynamic(y, v), check)
        torch._dynamo.reset()


@case
def draws(report):
    rows, n, k = 1024, 32768, 50
    logits = random(rows, n, dtype=torch.float32)
    shape = f"{rows} x {n} float"

    def sample():
        values, ids = torch.topk(logits, k)
        return ids.gather(1, torch.multinomial(torch.softmax(values, -1), 1))

    report.time("top-k 50", shape, "topk, eager", lambda: torch.topk(logits, k))
    report.time("sampling, top-k 50", shape, "topk and multinomial, eager", sample)
    compiled = torch.compile(sample)
    report.time("sampling, top-k 50", shape, "topk and multinomial, compiled", compiled)
    report.time("row maximum", shape, "max, eager", lambda: logits.max(-1))
    report.time("row norm", shape, "norm, eager", lambda: torch.linalg.vector_norm(logits, dim=-1))


@case
def small_algebra(report):
    a, b = random(64, 256, 256, dtype=torch.float32), random(64, 256, 256, dtype=torch.float32)
    report.time("batched product", "64 of 256 x 256 float", "bmm, eager", lambda: torch.bmm(a, b))
    definite = a @ a.transpose(1, 2) + 256 * torch.eye(256, device="cuda")
    report.time("Cholesky", "64 of 256 x 256 float", "cholesky, eager",
                lambda: torch.linalg.cholesky(definite))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=100)
    report = Report(parser.parse_args().seconds)
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    for each in CASES:
        each(report)
        torch.cuda.empty_cache()
    print(json.dumps({"torch": torch.__version__, "measurements": report.measurements,
                      "problems": report.problems}, indent=1))


if __name__ == "__main__":
    main()
