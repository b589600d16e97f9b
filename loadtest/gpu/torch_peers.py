"""Times PyTorch and Triton on cases of gpu_bench.

    torch_peers.py list          the groups of peers
    torch_peers.py run GROUP...  times them; prints what `gpu_bench run` prints

Names and shapes are those of gpu_bench, by which the report matches the measurements. Every peer is
checked against float64 before it is timed. Inputs are drawn afresh, in several sets that together
are larger than the cache; all sets are captured in one graph, whose replays are timed.
"""

import json
import math
import os
import sys

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

DEVICE = os.environ.get("SLUICE_PEERS_DEVICE", "cuda")  # "cpu" checks values only, in small sizes
ON_GPU = DEVICE == "cuda"
ROTATED_BYTES = 256 << 20
MOST_SETS = 16
BATCHES = 15
GROUPS = {}
# The groups in the order of their importance.
ORDER = ["ceilings", "decode_attention", "prefill_attention", "dense", "draws", "xsa",
         "position_wise", "heads", "short_attention"]


def group(function):
    GROUPS[function.__name__] = function
    return function


class Report:
    """Prints measurements as they come and collects what could not be measured."""

    def __init__(self):
        self.problems = []

    def keep(self, name, shape, peer, **more):
        measurement = {"part": "peers", "name": name, "shape": shape, "peer": peer, "unit": "us"}
        print(json.dumps({"measurement": {**measurement, **more}}), flush=True)

    def time(self, name, shape, peer, make, tolerance=1e-2, **more):
        """Times a peer. `make` draws inputs and returns a function that runs it on them, and one
        that returns what it must return, in float64, or None if there is nothing to compare.
        """
        try:
            self._time(name, shape, peer, make, tolerance, more)
        except Exception as error:  # A failure is reported; the other peers go on.
            self.problems.append(
                f"{name}; {shape}, {peer}: {type(error).__name__}: {str(error)[:200]}")
            torch._dynamo.reset()
        if ON_GPU:
            torch.cuda.empty_cache()

    def _time(self, name, shape, peer, make, tolerance, more):
        before = torch.cuda.memory_allocated() if ON_GPU else 0
        run, expected = make()
        out, wanted = run(), expected()
        if wanted is not None:  # It may be that of the first sequences only.
            out = out[:len(wanted)]
            error = ((out.double() - wanted).norm() / wanted.norm()).item()
            if not error <= tolerance:
                self.problems.append(f"{name}; {shape}, {peer}: relative error {error:.3g}")
                return
        del out, wanted, expected
        if not ON_GPU:
            self.keep(name, shape, peer, value=1.0)
            return
        runs = [run]
        taken = torch.cuda.memory_allocated() - before
        while len(runs) < MOST_SETS and len(runs) * taken < ROTATED_BYTES:
            runs.append(make()[0])
        value, low, high = times_of(runs)
        self.keep(name, shape, peer, value=value, low=low, high=high, sets=len(runs), **more)


def times_of(runs):
    """Returns the median and the quartiles of one run in microseconds."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for run in runs:
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for run in runs:
                run()
    except RuntimeError:  # It cannot be captured, as when it waits for the device.
        torch.cuda.synchronize()
        low, value, high = do_bench(runs[0], warmup=10, rep=50, quantiles=[0.25, 0.5, 0.75])
        return 1e3 * value, 1e3 * low, 1e3 * high

    def batch(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / (replays * len(runs))

    replays = max(1, min(100, int(5e3 / (batch(1) * len(runs)))))  # about 5 ms in a batch
    times = sorted(batch(replays) for _ in range(BATCHES))
    return times[BATCHES // 2], times[BATCHES // 4], times[-1 - BATCHES // 4]


def random(*shape, dtype=torch.bfloat16):
    return torch.rand(*shape, device=DEVICE, dtype=torch.float32).mul_(2).sub_(1).to(dtype)


def of(full, small):
    """Returns the size of a case: small where only values are checked."""
    return full if ON_GPU else small


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


def unsqueezed(y, v, form):
    """XSA on y [rows, kv heads, group, dim]; v [rows, kv heads, dim] is broadcast."""
    return form(y, v.unsqueeze(2))


def expanded(y, v, form):
    return form(y, v.unsqueeze(2).expand_as(y).contiguous())


def norm_form(y, v):
    unit = F.normalize(v.float(), dim=-1, eps=1e-6)
    y32 = y.float()
    return (y32 - (y32 * unit).sum(-1, keepdim=True) * unit).to(y.dtype)


def squared_form(y, v):
    y32, v32 = y.float(), v.float()
    share = (y32 * v32).sum(-1, keepdim=True) / v32.square().sum(-1, keepdim=True).clamp_min(1e-6)
    return (y32 - share * v32).to(y.dtype)


def exact_form(y, v):
    y, v = y.double(), v.double().unsqueeze(2)
    return y - (y * v).sum(-1, keepdim=True) / v.square().sum(-1, keepdim=True) * v


@group
def xsa(report):
    for rows, q_heads, kv_heads in ((of(64 * 1024, 64), 8, 2), (of(2048, 32), 32, 4)):
        shape = f"{rows} rows, {q_heads}/{kv_heads} heads of 64 bf16"
        for name, form in (("XSA, norm form", norm_form), ("XSA, squared form", squared_form)):
            for spread in (unsqueezed, expanded):

                def of_function(function):

                    def make():
                        y = random(rows, kv_heads, q_heads // kv_heads, 64)
                        v = random(rows, kv_heads, 64)
                        return lambda: function(y, v), lambda: exact_form(y, v)

                    return make

                def eager(y, v):
                    return spread(y, v, form)

                word = spread.__name__
                report.time(name, shape, f"{word}, eager", of_function(eager))
                for dynamic in (False, True) if spread is unsqueezed else (False, ):
                    torch._dynamo.reset()
                    compiled = torch.compile(eager, dynamic=dynamic)
                    report.time(name, shape,
                                f"{word}, compiled{', dynamic' if dynamic else ''}",
                                of_function(compiled))


def attention_exactly(q, k, v, causal):
    """q [batch, heads, count, dim], k and v [batch, kv heads, context, dim]. Computes the first two
    sequences.
    """
    q, k, v = (tensor[:2].double() for tensor in (q, k, v))
    group_size = q.shape[1] // k.shape[1]
    k, v = (tensor.repeat_interleave(group_size, dim=1) for tensor in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        visible = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~visible, -math.inf)
    return torch.softmax(scores, -1) @ v


BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


def shape_of_attention(batch, count, context, q_heads, kv_heads, dim):
    return f"{batch} x {count} of {context}, {q_heads}/{kv_heads} heads of {dim} bf16"


def causal_attention(batch, length, q_heads, kv_heads, dim, backend):

    def make():
        q = random(batch, q_heads, length, dim)
        k, v = random(batch, kv_heads, length, dim), random(batch, kv_heads, length, dim)

        def run():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                      enable_gqa=q_heads != kv_heads)

        return run, lambda: attention_exactly(q, k, v, causal=True)

    return make


@group
def prefill_attention(report):
    length, batch = of(2048, 32), of(8, 2)
    for name, backend in BACKENDS.items():
        report.time("attention, prefill", shape_of_attention(batch, length, length, 32, 8, 128),
                    f"SDPA, {name}", causal_attention(batch, length, 32, 8, 128, backend))


@group
def short_attention(report):
    for length in (32, 128):
        for batch in (of(64, 2), of(512, 2)):
            for q_heads, kv_heads, dim in ((8, 8, 64), (32, 8, 128)):
                for name, backend in BACKENDS.items():
                    report.time("attention, short",
                                shape_of_attention(batch, length, length, q_heads, kv_heads, dim),
                                f"SDPA, {name}",
                                causal_attention(batch, length, q_heads, kv_heads, dim, backend))


@triton.jit
def paged_decode_kernel(q, keys, values, pages, sums, tops, totals, scale, context, pages_each,
                        kv_heads: tl.constexpr, group_size: tl.constexpr, dim: tl.constexpr,
                        page: tl.constexpr, segment: tl.constexpr, block: tl.constexpr,
                        rows: tl.constexpr):
    """Attends the queries of one KV head to one segment of its sequence's pages."""
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    segments = tl.num_programs(2)
    row = tl.arange(0, rows)
    column = tl.arange(0, dim)
    first_row = (sequence * kv_heads + head) * group_size
    query = tl.load(q + (first_row + row)[:, None] * dim + column[None, :],
                    mask=(row < group_size)[:, None], other=0.0)
    top = tl.full([rows], -float("inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    out = tl.zeros([rows, dim], tl.float32)
    begin = part * segment
    for start in range(begin, tl.minimum(begin + segment, context), block):
        position = start + tl.arange(0, block)
        seen = position < context
        number = tl.load(pages + sequence * pages_each + position // page, mask=seen, other=0)
        at = ((number.to(tl.int64) * page + position % page) * kv_heads + head) * dim
        key = tl.load(keys + at[:, None] + column[None, :], mask=seen[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(seen[None, :], score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new_top[:, None])
        kept = tl.exp(top - new_top)
        value = tl.load(values + at[:, None] + column[None, :], mask=seen[:, None], other=0.0)
        out = out * kept[:, None] + tl.dot(weight.to(value.dtype), value)
        total = total * kept + tl.sum(weight, 1)
        top = new_top
    place = (first_row + row) * segments + part
    tl.store(sums + place[:, None] * dim + column[None, :], out, mask=(row < group_size)[:, None])
    tl.store(tops + place, top, mask=row < group_size)
    tl.store(totals + place, total, mask=row < group_size)


@triton.jit
def merge_kernel(sums, tops, totals, out, segments, most: tl.constexpr, dim: tl.constexpr):
    row = tl.program_id(0)
    part = tl.arange(0, most)
    column = tl.arange(0, dim)
    there = part < segments
    top = tl.load(tops + row * segments + part, mask=there, other=-float("inf"))
    weight = tl.exp(top - tl.max(top, 0))
    total = tl.load(totals + row * segments + part, mask=there, other=0.0)
    values = tl.load(sums + (row * segments + part)[:, None] * dim + column[None, :],
                     mask=there[:, None], other=0.0)
    merged = tl.sum(values * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + row * dim + column, merged.to(out.dtype.element_ty))


def paged_decode(q, keys, values, pages, context, segment):
    """q [batch, heads, dim], keys and values [pages, tokens of a page, kv heads, dim]."""
    batch, q_heads, dim = q.shape
    page, kv_heads = keys.shape[1:3]
    segments = -(-context // segment)
    sums = torch.empty(batch, q_heads, segments, dim, device=q.device, dtype=torch.float32)
    tops = torch.empty(batch, q_heads, segments, device=q.device, dtype=torch.float32)
    totals = torch.empty_like(tops)
    out = torch.empty_like(q)
    group_size = q_heads // kv_heads
    paged_decode_kernel[batch, kv_heads, segments](
        q, keys, values, pages, sums, tops, totals, 1 / math.sqrt(dim), context, pages.shape[1],
        kv_heads, group_size, dim, page, segment, 64, max(16, triton.next_power_of_2(group_size)))
    merge_kernel[(batch * q_heads, )](sums, tops, totals, out, segments,
                                      triton.next_power_of_2(segments), dim)
    return out


class DecodeInputs:
    """The inputs of a decode step, in pages in random order, and as whole tensors on demand."""

    def __init__(self, batch, context, page=16, q_heads=32, kv_heads=8, dim=128):
        each = context // page
        self.context = context
        self.q = random(batch, q_heads, dim)
        self.keys = random(batch * each, page, kv_heads, dim)
        self.values = random(batch * each, page, kv_heads, dim)
        self.pages = torch.randperm(batch * each, device=DEVICE).to(torch.int32).view(batch, each)

    def whole(self, cache, sequences):
        """Returns [sequences, kv heads, context, dim]."""
        return cache[self.pages[:sequences].long()].flatten(1, 2).transpose(1, 2).contiguous()

    def exactly(self):
        sequences = self.q.shape[0]
        k, v = (self.whole(cache, min(2, sequences)) for cache in (self.keys, self.values))
        return attention_exactly(self.q.unsqueeze(2), k, v, causal=False).squeeze(2)


def paged(batch, context, segment):

    def make():
        inputs = DecodeInputs(batch, context)
        return (lambda: paged_decode(inputs.q, inputs.keys, inputs.values, inputs.pages, context,
                                     segment), inputs.exactly)

    return make


def folded(batch, context, backend):
    """SDPA over whole tensors; the queries of a KV head are the rows of one head."""

    def make():
        inputs = DecodeInputs(batch, context)
        k, v = (inputs.whole(cache, batch) for cache in (inputs.keys, inputs.values))
        q = inputs.q.view(batch, 8, 4, 128)
        exact = inputs.exactly()
        del inputs

        def run():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v).view(batch, 32, 128)

        return run, lambda: exact

    return make


def flashinfer_decode(batch, context):

    def make():
        import flashinfer
        inputs = DecodeInputs(batch, context)
        each = context // 16
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE), "NHD")
        starts = torch.arange(batch + 1, device=DEVICE, dtype=torch.int32) * each
        last = torch.full((batch, ), 16, device=DEVICE, dtype=torch.int32)
        wrapper.plan(starts, inputs.pages.flatten(), last, 32, 8, 128, 16,
                     data_type=torch.bfloat16)
        return lambda: wrapper.run(inputs.q, (inputs.keys, inputs.values)), inputs.exactly

    return make


def has_flashinfer():
    try:
        import flashinfer  # noqa: F401
        return True
    except ImportError:
        return False


@group
def decode_attention(report):
    sizes = [(64, 2048)] + [(batch, context) for context in (1024, 8192)
                            for batch in (1, 16, 64, 256)] + [(1, 32768)]
    for batch, context in sizes if ON_GPU else [(2, 96), (1, 1024)]:
        shape = shape_of_attention(batch, 1, context, 32, 8, 128)
        for segment in (256, 1024):
            report.time("attention, decode", shape, f"Triton, paged, segments of {segment}",
                        paged(batch, context, segment))
        for name, backend in BACKENDS.items():
            if name != "math":
                report.time("attention, decode", shape, f"SDPA, not paged, {name}",
                            folded(batch, context, backend))
        if has_flashinfer():
            report.time("attention, decode", shape, "flashinfer", flashinfer_decode(batch, context))


def draw_of(function, rows, n):
    """A draw is checked with logits of which one token has all the weight."""

    def make():
        logits = random(rows, n, dtype=torch.float32)
        peaked = logits.clone()
        ids = torch.randint(n, (rows, 1), device=DEVICE)
        peaked.scatter_(1, ids, 1e4)
        drawn = function(peaked).view(rows, 1)
        if not torch.equal(drawn, ids):
            raise ValueError("the draw is not the only likely token")
        return lambda: function(logits), lambda: None

    return make


def multinomial(logits):
    return torch.multinomial(torch.softmax(logits, -1), 1)


def race(logits):
    """Draws as vLLM does, by dividing by exponentially distributed numbers."""
    weights = torch.softmax(logits, -1)
    return (weights / torch.empty_like(weights).exponential_()).argmax(-1)


def of_top_k(logits):
    values, ids = torch.topk(logits, 50)
    return ids.gather(1, torch.multinomial(torch.softmax(values, -1), 1))


@group
def draws(report):
    for rows, n in ((1, 128256), (64, 32768), (64, 128256), (1024, 32768)):
        rows, n = of(rows, 4), of(n, 200)
        shape, name = f"{rows} x {n} float", "sampling, plain temperature"
        report.time(name, shape, "softmax and multinomial", draw_of(multinomial, rows, n))
        report.time(name, shape, "softmax and exponential race", draw_of(race, rows, n))
        report.time(name, shape, "softmax and exponential race, compiled",
                    draw_of(torch.compile(race), rows, n))
        torch._dynamo.reset()
    rows, n = of(1024, 4), of(32768, 200)
    shape = f"{rows} x {n} float"
    report.time("sampling, top-k 50", shape, "topk and multinomial", draw_of(of_top_k, rows, n))
    report.time("sampling, greedy", shape, "argmax", draw_of(lambda x: x.argmax(-1), rows, n))


def main():
    if ON_GPU and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    verb, names = sys.argv[1], sys.argv[2:]
    if verb == "list":
        print("\n".join(sorted(GROUPS, key=ORDER.index)))
        return
    for name in names:
        print(json.dumps({"start": name}), flush=True)
        report = Report()
        GROUPS[name](report)
        print(json.dumps({"end": name, "problems": report.problems}), flush=True)


if __name__ == "__main__":
    main()
