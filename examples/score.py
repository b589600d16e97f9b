#!/usr/bin/env python3
"""Prints the log-probability that a language model gives to each text.

  python examples/score.py localhost:8001 demo "In the beginning" "Beginning in the"
"""

import argparse
import asyncio
import sys

from sluice_client import AsyncClient, SluiceError


async def scores(server, model, texts):
    async with AsyncClient(server) as client:
        # The daemon batches calls that are in progress at the same time.
        return await asyncio.gather(*(client.score(model, text) for text in texts))


def main():
    parser = argparse.ArgumentParser(description="Prints the log-probability of each text.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served language model")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    given = parser.parse_args()
    try:
        found = asyncio.run(scores(given.server, given.model, given.texts))
    except SluiceError as error:
        sys.exit(f"score.py: {error}")
    for text, score in zip(given.texts, found):
        print(f"{score.total:10.3f}  {text}")


if __name__ == "__main__":
    main()
