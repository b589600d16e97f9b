"""Times PyTorch and Triton on cases of gpu_bench.

    torch_peers.py list          the groups of peers
    torch_peers.py run GROUP...  times them; the output has the format of `gpu_bench run`

Names and shapes are the same as in gpu_bench, so that the report can match the measurements. Every
peer is checked against float64 before it is timed. Inputs are drawn in several sets that together
are larger than the cache. One graph captures all sets, and its replays are timed.
"""

import json
import sys

import torch
import torch_attention  # noqa: F401, adds its groups
import torch_products  # noqa: F401
import torch_rows  # noqa: F401
from torch_timing import GROUPS, ON_GPU, Report

# The groups in order of importance.
ORDER = ["ceilings", "decode_attention", "prefill_attention", "dense", "draws", "xsa",
         "xsa_kernels", "position_wise", "heads", "short_attention"]


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
