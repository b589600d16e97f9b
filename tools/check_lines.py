#!/usr/bin/env python3
"""Fails on a line of more than 100 columns in the project's hand-written text files.

Generated files and data are not checked. Lines that cannot be broken are not checked either: rows
of tables in Markdown, links, and lines of a single word.
"""

import argparse
import os
import pathlib
import re
import sys

COLUMNS = 100
WHOLE = {".cc", ".cmake", ".cu", ".h", ".in", ".inc", ".md", ".proto", ".py"}
COMMENTS = {"", ".css", ".html", ".js", ".service", ".sh", ".txt", ".yaml", ".yml"}
NOT_OURS = {".git", ".venv", "__pycache__", "build"}  # folders, as in .gitignore
COMMENT = re.compile(r"^\s*(#|//|/?\*)")
# Data, program output, and texts by others.
LEFT_OUT = re.compile(r"^(LICENSE|config/sluice\.yaml|docs/(options|metrics)\.md|loadtest/results/"
                      r"|models/[^/]+/(?!.*\.(py|md)$)|tests/fuzz/corpus/"
                      r"|tests/goldens/(?!.*\.py$))")
UNBREAKABLE = re.compile(r"^\s*(\||(//|#|[-*])?\s*\S+$)|https?://\S{40,}|^\s*\[[^]]+\]: ")


def files(root):
    """Yields the paths of the project's files relative to root. Needs no git."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - NOT_OURS)
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in sorted(names))


def too_long(root):
    """Yields (file, line, columns) for each line that is too long."""
    for name in files(root):
        path = root / name
        whole = path.suffix in WHOLE or path.name == "CMakeLists.txt"
        if not whole and path.suffix not in COMMENTS or LEFT_OUT.match(name) or not path.is_file():
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        code = False  # whether the line is in a code block of a document
        for number, line in enumerate(lines, 1):
            if path.suffix == ".md" and line.lstrip().startswith("```"):
                code = not code
            if len(line) <= COLUMNS or code or UNBREAKABLE.search(line):
                continue
            if whole or COMMENT.match(line):
                yield name, number, len(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent,
                        type=pathlib.Path, help="the tree to check (default: this one)")
    count = 0
    for name, number, columns in too_long(parser.parse_args().root):
        count += 1
        print(f"{name}:{number}: {columns} columns, more than {COLUMNS}")
    if count:
        sys.exit(f"{count} lines of more than {COLUMNS} columns")


if __name__ == "__main__":
    main()
