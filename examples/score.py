#!/usr/bin/env python3
"""Prints the log-probability that a language model gives to each text.

  python examples/score.py localhost:8001 demo "In the beginning" "Beginning in the"
"""

import sys

import numpy as np
import tritonclient.grpc as grpcclient


def main():
    server, model, *texts = sys.argv[1:]
    client = grpcclient.InferenceServerClient(server)
    prompts = grpcclient.InferInput("text_input", [len(texts), 1], "BYTES")
    prompts.set_data_from_numpy(np.array([[text.encode()] for text in texts], np.object_))
    # Nothing is generated. Each token of a prompt has its log-probability; the first one has 0.
    answer = client.infer(model, [prompts], parameters={"max_tokens": 0},
                          outputs=[grpcclient.InferRequestedOutput("prompt_logprobs")])
    for text, row in zip(texts, answer.as_numpy("prompt_logprobs")):
        print(f"{row.sum():10.3f}  {text}")


if __name__ == "__main__":
    main()
