#!/usr/bin/env python3
"""Writes the messages of the daemon, the client and the gateway to build/messages.md.

The table is for reading: every literal of at least two words in the product's sources, by file and
line. Reviewers read it from top to bottom (rule 8 of the rules for text in CONTRIBUTING.md).
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_lines
import check_prose

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("base/", "cascades/", "client/", "clients/python/sluice_client/", "config/", "engine/",
           "server/", "verify/")
MIN_WORDS = 2  # of a message with a space, such as "is empty"; others are mostly keys


def messages(name, text):
    """Yields (line, message) of a source: its literals, without comments and docstrings."""
    read = check_prose.passages_of_python if name.endswith(".py") else check_prose.passages_of_c
    for line, passage in read(text, comments=False):
        passage = " ".join(passage.split())
        if " " in passage and len(check_prose.WORD.findall(passage)) >= MIN_WORDS:
            yield line, passage


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "messages.md")
    arguments = parser.parse_args()
    rows = ["| place | message |", "|---|---|"]
    for name in check_lines.files(ROOT):
        if name.startswith(FOLDERS) and name.endswith((".cc", ".h", ".py", ".inc")):
            for line, message in messages(name, (ROOT / name).read_text()):
                rows.append(f"| {name}:{line} | {message.replace('|', chr(92) + '|')} |")
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text("\n".join(rows) + "\n")
    print(f"{len(rows) - 2} messages: {arguments.out}")


if __name__ == "__main__":
    main()
