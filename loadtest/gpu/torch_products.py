"""Times PyTorch's products, and the peak rates of memory and products."""

import torch
from torch_timing import DEVICE, group, of, random


@group
def ceilings(report):
    elements = of(1 << 29, 1 << 10)

    def copy():
        source, target = random(elements), torch.empty(elements, device=DEVICE,
                                                       dtype=torch.bfloat16)
        return lambda: target.copy_(source), lambda: source.double()

    report.time("ceiling of memory", f"{2 * elements} bytes", "copy_", copy, bytes=4 * elements)
    n = of(8192, 64)

    def product():
        a, b = random(n, n), random(n, n)
        return lambda: a @ b, lambda: None

    report.time("ceiling of products", f"L1 B{n} {n} x {n} bf16", "matmul", product,
                operations=2 * n**3, tensor_cores=True)


@group
def position_wise(report):
    positions, width = of(256, 4), of(512, 32)
    compiled = torch.compile(lambda x, w, b: torch.einsum("bld,lde->ble", x, w) + b)
    for rows in (1, 4, 8, 16, 64):
        shape = f"L{positions} B{rows} {width} x {width} bf16"

        def inputs():
            return random(rows, positions, width), random(positions, width, width), random(width)

        def einsum(function):

            def make():
                x, w, b = inputs()
                return (lambda: function(x, w, b),
                        lambda: torch.einsum("bld,lde->ble", x.double(), w.double()) + b.double())

            return make

        def bmm():
            x, w, b = inputs()
            x = x.transpose(0, 1).contiguous()
            return (lambda: torch.baddbmm(b, x, w),
                    lambda: torch.bmm(x.double(), w.double()) + b.double())

        name = "position-wise projection"
        report.time(name, shape, "einsum, eager",
                    einsum(lambda x, w, b: torch.einsum("bld,lde->ble", x, w) + b))
        report.time(name, shape, "bmm, eager", bmm)
        report.time(name, shape, "einsum, compiled", einsum(compiled))


def biased_product(rows, k, n):

    def make():
        x, w, b = random(rows, k), random(k, n), random(n)
        return (lambda: torch.addmm(b, x, w), lambda: torch.addmm(b.double(), x.double(),
                                                                  w.double()))

    return make


@group
def dense(report):
    k = of(4096, 64)
    for n in (of(4096, 64), of(1024, 32)):
        for rows in (1, 16, 64, 256, 1024, 8192):
            for name in ("dense projection", "dense projection, library"):
                report.time(name, f"L1 B{rows} {k} x {n} bf16", "addmm (cuBLASLt)",
                            biased_product(rows, k, n))


@group
def heads(report):
    k = of(4096, 64)
    for rows, n in ((32, 32768), (256, 32768), (1024, 32768), (4096, 32768), (32, 128256)):
        n = of(n, 128)

        def make():
            x, w = random(rows, k), random(k, n)
            return lambda: x @ w, lambda: x.double() @ w.double()

        report.time("head projection", f"L1 B{rows} {k} x {n} bf16", "matmul, bf16 out", make)
