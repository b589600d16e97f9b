#!/usr/bin/env python3
"""Serves PyTorch (Hugging Face's model) with the minimal server: prompts in padded batches, and the
next token of each.
"""

import numpy as np
import torch
from transformers import LlamaForCausalLM

import oip
from batcher import Answer, Batcher, Waiting, padded


class NextTokens:
    def __init__(self, checkpoint: str):
        self._model = LlamaForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def __call__(self, batch: list[Waiting]) -> list[Answer]:
        rows, lengths = padded([each.prompt for each in batch])
        # Padding is on the right and attention is causal, so no row needs a mask.
        states = self._model.model(torch.from_numpy(rows), use_cache=False).last_hidden_state
        last = states[torch.arange(len(batch)), torch.from_numpy(lengths - 1).long()]
        best = torch.log_softmax(self._model.lm_head(last), -1).max(-1)
        return [Answer([token], [logprob])
                for token, logprob in zip(best.indices.tolist(), best.values.tolist())]


def main() -> None:
    options = oip.arguments(__doc__).parse_args()
    torch.set_num_threads(options.threads)
    next_tokens = NextTokens(options.checkpoint)
    next_tokens([Waiting(np.zeros(8, np.int32), 1, None)])
    batcher = Batcher(next_tokens, options.max_rows, options.max_padding)
    oip.serve(batcher.answer, options.address)


if __name__ == "__main__":
    main()
