"""Makes tests/goldens/verify: a small random GPT-2 and the outputs that PyTorch computes with it.

The model is in the format of transformers. The script needs torch and transformers. Run it in this
folder; the result is committed.
"""

import pathlib
import random
import shutil
import subprocess
import sys

import torch
import transformers

OUT = pathlib.Path(__file__).parent / "verify"


def main():
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=97,
        n_embd=16,
        n_layer=3,
        n_head=2,
        n_positions=24,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    for parameter in model.parameters():  # This includes norms and biases.
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    shutil.rmtree(OUT, ignore_errors=True)
    model.save_pretrained(OUT)
    draw = random.Random(1)
    rows = [",".join(str(draw.randrange(97)) for _ in range(length)) for length in (7, 1, 12)]
    subprocess.run(
        [
            sys.executable,
            OUT.parents[2] / "tools" / "save_golden.py",
            OUT,
            OUT / "golden.npz",
            *[argument for row in rows for argument in ("--ids", row)],
        ],
        check=True,
    )


if __name__ == "__main__":
    main()
