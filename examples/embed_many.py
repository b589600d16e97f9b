#!/usr/bin/env python3
"""Embeds each line of a text file, and appends the vectors to a file, a line of JSON for each.

After a failure, run it again: it continues after the last line that was written.

  python examples/embed_many.py localhost:8001 demo README.md vectors.jsonl
"""

import argparse
import json
import sys

from sluice_client import Client, InvalidArgument, Retry, SluiceError

CHUNK = 1024  # texts that are computed again after a failure, at most


def embed(client, model, texts, begin, skip):
    """Returns the vector of each text, and with `skip` None for each that is invalid."""
    vectors = [None] * len(texts)
    left = list(range(len(texts)))
    while left:
        try:
            found = client.embed(model, [texts[i] for i in left], truncate="right", priority=3)
        except InvalidArgument as error:
            if not skip or error.item is None:
                raise
            line = left.pop(error.item)
            print(f"line {begin + line + 1} is skipped: {error}", file=sys.stderr)
        else:
            for i, vector in zip(left, found.tolist()):
                vectors[i] = vector
            break
    return vectors


def main():
    parser = argparse.ArgumentParser(description="Embeds each line of a file; may be repeated.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served embedding model")
    parser.add_argument("texts", help="a file with a text in each line")
    parser.add_argument("vectors", help="the file to append to")
    parser.add_argument("--skip-invalid", action="store_true",
                        help="report lines that are refused as invalid, and write null for them")
    given = parser.parse_args()
    with open(given.texts) as file:
        texts = [line.strip() or " " for line in file]
    with open(given.vectors, "a+") as out, Client(given.server, retry=Retry(attempts=12)) as client:
        out.seek(0)
        written = out.read()
        done = written.count("\n")
        if written and not written.endswith("\n"):
            out.truncate(written.rfind("\n") + 1)  # An earlier run ended within a line.
        try:
            for begin in range(done, len(texts), CHUNK):
                vectors = embed(client, given.model, texts[begin : begin + CHUNK], begin,
                                given.skip_invalid)
                out.writelines(json.dumps(each) + "\n" for each in vectors)
                out.flush()
                print(f"{begin + len(vectors)} of {len(texts)}")
        except SluiceError as error:
            sys.exit(f"embed_many.py: {error}; run it again to continue")


if __name__ == "__main__":
    main()
