#!/usr/bin/env python3
"""Prints the text that a model generates while it is generated.

  python examples/stream.py localhost:8001 demo "In the beginning" 60
"""

import queue
import sys

import numpy as np
import tritonclient.grpc as grpcclient


def main():
    server, model, text, max_tokens = sys.argv[1:]
    prompt = grpcclient.InferInput("text_input", [1, 1], "BYTES")
    prompt.set_data_from_numpy(np.array([[text.encode()]], np.object_))
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(server) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer(model, [prompt], parameters={"max_tokens": int(max_tokens)},
                                  enable_empty_final_response=True,
                                  outputs=[grpcclient.InferRequestedOutput("text_output")])
        while True:
            result, error = answers.get(timeout=60)
            if error is not None:
                sys.exit(str(error))
            piece = result.as_numpy("text_output")
            if piece is not None:
                print(piece[0, 0].decode(errors="replace"), end="", flush=True)
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
    print()


if __name__ == "__main__":
    main()
