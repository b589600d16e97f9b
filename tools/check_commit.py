#!/usr/bin/env python3
"""Fails if the subject of a commit message is not `area: imperative`, such as
"engine: drop expired rows before forming a batch". Git runs it as a hook with the message's file.
"""

import argparse
import pathlib
import re
import sys

LONGEST = 72  # characters
SCISSORS = "# ------------------------ >8 ------------------------"
MADE_BY_GIT = re.compile(r'(Merge|Revert|Reapply) |(amend|fixup|squash)! ')


def faults(message):
    """Yields each fault of a commit message. Git's comments in the message are ignored."""
    lines = [line for line in message.split(SCISSORS)[0].splitlines() if not line.startswith("#")]
    subject, *body = "\n".join(lines).strip().split("\n")
    if MADE_BY_GIT.match(subject):
        return
    if not re.match(r"[a-z][a-z0-9_./-]*: [a-z]", subject):
        yield "line 1 is not `area: imperative` in lowercase, such as `engine: drop expired rows`"
    if len(subject) > LONGEST:
        yield f"line 1 has {len(subject)} characters; the maximum is {LONGEST}. Use the body"
    if subject.endswith("."):
        yield "line 1 ends with a period. Remove it"
    if body and body[0].strip():
        yield "line 2 is not empty. Begin the body on line 3"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path, help="the message, as git passes it to a hook")
    found = list(faults(parser.parse_args().file.read_text(encoding="utf-8")))
    sys.exit("\n".join(f"commit message: {fault}" for fault in found) or 0)
