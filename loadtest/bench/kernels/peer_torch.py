"""The PyTorch peer of run.py: peer_torch.py MODEL_DIRECTORY THREADS.

Requires an interpreter with torch and transformers. The jobs, in the protocol of peer_loop.py:
  {"job": "forward", "dtype": "bf16" | "f32", "lengths": [...], "padded": bool, "all_rows": bool}
      prompts in one padded batch, or one by one; logits of every row or of each prompt's last row
  {"job": "decode", "dtype": ..., "context": n}        one token after n in the cache
  {"job": "attention", "sequences": n, "length": n, "q_heads": n, "kv_heads": n, "xsa": bool,
   "compiled": bool}
      scaled_dot_product_attention in f32, causal, head size 64, followed by the formula of XSA;
      with "compiled", torch.compile compiles both
"""

import functools
import sys

import peer_loop
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
XSA_EPS = 1e-6


@functools.cache
def model(directory, dtype):
    return LlamaForCausalLM.from_pretrained(
        directory, dtype=DTYPES[dtype], attn_implementation="sdpa"
    ).eval()


def random_tokens(rows, columns):
    return torch.randint(0, 32000, (rows, columns), generator=torch.Generator().manual_seed(1))


def forward(directory, job):
    llama = model(directory, job["dtype"])
    keep = 0 if job["all_rows"] else 1
    if not job["padded"]:
        prompts = [random_tokens(1, length) for length in job["lengths"]]
        return lambda: [llama(p, use_cache=False, logits_to_keep=keep).logits for p in prompts]
    longest = max(job["lengths"])
    # Padded at the start, so that the last column is each prompt's last token.
    mask = torch.tensor([[0] * (longest - n) + [1] * n for n in job["lengths"]])
    tokens = random_tokens(len(job["lengths"]), longest)
    return lambda: llama(tokens, attention_mask=mask, use_cache=False, logits_to_keep=keep).logits


def decode(directory, job):
    llama = model(directory, job["dtype"])
    prompt = random_tokens(1, job["context"])
    cache = llama(prompt, use_cache=True, logits_to_keep=1).past_key_values
    token = random_tokens(1, 1)

    def step():
        llama(token, past_key_values=cache, use_cache=True)
        cache.crop(-1)

    return step


def exclude(y, v):
    """Returns z = y - (y . v^) v^, v^ = v / max(|v|, eps)."""
    unit = v / v.norm(dim=-1, keepdim=True).clamp_min(XSA_EPS)
    return y - (y * unit).sum(-1, keepdim=True) * unit


def attention(job):
    random = torch.Generator().manual_seed(1)
    shape = (job["sequences"], job["q_heads"], job["length"], 64)
    q = torch.randn(shape, generator=random)
    kv_shape = (shape[0], job["kv_heads"], *shape[2:])
    k, v = (torch.randn(kv_shape, generator=random) for _ in range(2))
    shared = job["q_heads"] // job["kv_heads"]

    def run():
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return exclude(y, v.repeat_interleave(shared, dim=1)) if job["xsa"] else y

    return torch.compile(run) if job.get("compiled") else run


def run_of(directory, job):
    if job["job"] == "attention":
        return attention(job)
    return (forward if job["job"] == "forward" else decode)(directory, job)


def main():
    directory, threads = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(threads)
    with torch.inference_mode():
        peer_loop.serve(f"torch {torch.__version__}", threads, lambda job: run_of(directory, job))


if __name__ == "__main__":
    main()
