#!/usr/bin/env python3
"""Prints the log-probability that a language model gives to each text.

  python examples/score.py localhost:8001 demo "In the beginning" "Beginning in the"
"""

import asyncio
import sys

from sluice_client import AsyncClient


async def main():
    server, model, *texts = sys.argv[1:]
    async with AsyncClient(server) as client:
        # The daemon batches calls that are in progress at the same time.
        scores = await asyncio.gather(*(client.score(model, text) for text in texts))
    for text, score in zip(texts, scores):
        print(f"{score.total:10.3f}  {text}")


if __name__ == "__main__":
    asyncio.run(main())
