#!/usr/bin/env python3
"""Prints the text that a model generates while it is generated.

  python examples/stream.py localhost:8001 demo "In the beginning" 60
"""

import argparse
import sys

from sluice_client import Client, SluiceError


def main():
    parser = argparse.ArgumentParser(description="Prints a text while it is generated.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served model that generates")
    parser.add_argument("prompt")
    parser.add_argument("max_tokens", type=int, help="the most tokens to generate")
    given = parser.parse_args()
    try:
        with Client(given.server) as client:
            for part in client.stream(given.model, given.prompt, max_tokens=given.max_tokens):
                print(part.text, end="", flush=True)
    except SluiceError as error:
        sys.exit(f"stream.py: {error}")
    print()


if __name__ == "__main__":
    main()
