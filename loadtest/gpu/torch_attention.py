"""Times the attention of PyTorch, flashinfer, and a kernel of Triton over pages."""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_timing import DEVICE, ON_GPU, group, of, random


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
