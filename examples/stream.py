#!/usr/bin/env python3
"""Prints the text that a model generates while it is generated.

  python examples/stream.py localhost:8001 demo "In the beginning" 60
"""

import sys

from sluice_client import Client


def main():
    server, model, text, max_tokens = sys.argv[1:]
    with Client(server) as client:
        for part in client.stream(model, text, max_tokens=int(max_tokens)):
            print(part.text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
