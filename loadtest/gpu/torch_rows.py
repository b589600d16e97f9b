"""Times PyTorch on row-wise operations: exclusive self-attention, and draws of tokens."""

import kernel_counts
import torch
import torch.nn.functional as F
from torch_timing import DEVICE, group, of, random


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


def after_attention(function):
    """Returns XSA of the output of attention of q, k and v [sequences, tokens, heads, dim]."""

    def run(q, k, v):
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        y = F.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=True)
        kv_heads, dim = v.shape[2:]
        return function(y.transpose(1, 2).reshape(-1, kv_heads, q.shape[2] // kv_heads, dim),
                        v.reshape(-1, kv_heads, dim))

    return run


@group
def xsa_kernels(report):
    """Counts the kernels of XSA by itself and after attention, whose own kernel is left out."""
    sequences, tokens, q_heads, kv_heads, dim = 8, 256, 8, 2, 64
    shape = f"{q_heads}/{kv_heads} heads of {dim} bf16"
    rows = (random(sequences * tokens, kv_heads, q_heads // kv_heads, dim),
            random(sequences * tokens, kv_heads, dim))
    attended = [random(sequences, tokens, heads, dim) for heads in (q_heads, kv_heads, kv_heads)]
    for name, form in (("norm form", norm_form), ("squared form", squared_form)):
        for spread in (unsqueezed, expanded):

            def itself(y, v):
                return spread(y, v, form)

            for what, function, arguments in (("XSA", itself, rows),
                                              ("XSA after attention", after_attention(itself),
                                               attended)):
                counted, word = f"{what}, {name}, kernels", spread.__name__
                report.count(counted, shape, f"{word}, eager",
                             lambda: len(kernel_counts.eager(function, arguments)))
                for mode, dynamic in (("static", False), ("dynamic", True)):
                    report.count(counted, shape, f"{word}, compiled, {mode}",
                                 lambda: kernel_counts.compiled(function, arguments, dynamic))


def draw_of(function, rows, n):
    """Checks a draw with logits that give all weight to one token."""

    def make():
        logits = random(rows, n, dtype=torch.float32)
        peaked = logits.clone()
        ids = torch.randint(n, (rows, 1), device=DEVICE)
        peaked.scatter_(1, ids, 1e4)
        drawn = function(peaked).view(rows, 1)
        if not torch.equal(drawn, ids):
            raise ValueError("the draw returned another token than the only likely one")
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
