"""Makes generate.json in this folder: greedy generations of Hugging Face with the models here.

The models are the committed llama_* checkpoints, in float32 with eager attention and with more
positions, which changes no weight. `tokens` come from a run without end token. The script checks
that a run with an end token gives a prefix of them. The daemon's tests read the committed file and
never run this script.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import LlamaForCausalLM

from make_goldens import MODELS

POSITIONS = 256
NEW_TOKENS = 64
MARGIN = 0.002  # Between the two largest scores of a step, so that rounding changes no token.
# Each case is (length of the prompt, repetition penalty). Pages have 16 positions.
CASES = [(1, 1.0), (16, 1.0), (17, 1.3), (150, 1.0), (33, 1.1)]


def load(path):
    model = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager",
                                             max_position_embeddings=POSITIONS)
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
    return model.eval()


def generate(model, prompt, penalty, **options):
    """Returns the new tokens and the smallest margin of a choice."""
    answer = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None],
                            max_new_tokens=NEW_TOKENS, repetition_penalty=penalty,
                            return_dict_in_generate=True, output_scores=True, **options)
    best = torch.cat(answer.scores).topk(2).values
    return answer.sequences[0, len(prompt):].tolist(), (best[:, 0] - best[:, 1]).min().item()


def make_case(model, length, penalty, rng):
    """Returns a case and its margin.

    It draws prompts until the margin is large enough and the answer has at least 4 different
    tokens, because an answer with fewer different tokens tests little.
    """
    eos = model.config.eos_token_id
    while True:
        prompt = torch.from_numpy(rng.integers(3, model.config.vocab_size, length))
        tokens, margin = generate(model, prompt, penalty)
        if margin > MARGIN and len(set(tokens)) >= 4:
            break
    ended, _ = generate(model, prompt, penalty, eos_token_id=eos)
    expected = tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
    assert len(tokens) == NEW_TOKENS and ended == expected
    case = {"prompt": prompt.tolist(), "repetition_penalty": penalty, "tokens": tokens}
    return case, margin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "generate.json")
    out = parser.parse_args().out
    torch.set_num_threads(1)  # More threads would change the order of sums.
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    lines, ends = [], 0
    for plain in (model for model in MODELS if model.name.startswith("llama_")):
        model, rng = load(here / plain.name), np.random.default_rng(plain.seed)
        for length, penalty in CASES:
            case, margin = make_case(model, length, penalty, rng)
            lines.append(json.dumps({"model": plain.name} | case, separators=(",", ":")))
            ends += model.config.eos_token_id in case["tokens"]
            print(f"{plain.name:16} length {length:3} penalty {penalty}  margin {margin:.4f}  "
                  f"{len(set(case['tokens']))} different tokens", flush=True)
    assert 0 < ends < len(lines), "the end token is never met, or always"
    out.write_text(f'{{"max_position_embeddings": {POSITIONS}, "cases": [\n'
                   + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
