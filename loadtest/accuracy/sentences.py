#!/usr/bin/env python3
"""Writes sentences of this repository's Markdown pages to compare precisions on.

    loadtest/accuracy/sentences.py --compared texts.txt --sample sample.txt

The texts to compare are sentences of 40 to 300 characters of running text, at most 1,000 in random
order. The sample for `sluice quantize` has 200 lines, none of them among the compared ones.
"""

import argparse
import pathlib
import random
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORTEST, LONGEST, COMPARED, SAMPLED = 40, 300, 1000, 200


def pages():
    for path in sorted(ROOT.rglob("*.md")):
        if "build" not in path.parts:
            yield re.sub(r"```.*?```", "", path.read_text(), flags=re.S)


def fits(text):
    return SHORTEST <= len(text) <= LONGEST


def sentences():
    for page in pages():
        for paragraph in re.split(r"\n\s*\n", page):
            if paragraph.lstrip().startswith(("|", "#", "-", "*", "<")):
                continue
            yield from filter(fits, re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())))


def lines():
    for page in pages():
        for line in page.splitlines():
            yield re.sub(r"^[#\-*|<> ]+", "", line).strip()


def drawn(texts, most, seed):
    unique = list(dict.fromkeys(texts))
    random.Random(seed).shuffle(unique)
    return unique[:most]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compared", type=pathlib.Path, required=True)
    parser.add_argument("--sample", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    compared = drawn(sentences(), COMPARED, 1)
    sample = drawn((line for line in lines() if fits(line) and line not in set(compared)),
                   SAMPLED, 2)
    arguments.compared.write_text("\n".join(compared) + "\n")
    arguments.sample.write_text("\n".join(sample) + "\n")
    print(f"{len(compared)} sentences to compare, {len(sample)} lines in the sample")


if __name__ == "__main__":
    main()
