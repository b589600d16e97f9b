#!/usr/bin/env python3
"""Prints the files that differ from the merge base with main, or their tests for ./test --quick.

Files that git does not track yet count as changed; removed files do not. Without a branch main,
local or at origin, only uncommitted changes count.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders that are covered by the tests of other folders.
COVERED_BY = {
    "proto": ("tests/server", "tests/client"),
    "models": ("tests/engine/model", "tests/engine/cpu"),
    "tests/support": ("tests/base", "tests/engine"),
    "tests/goldens": ("tests/engine/model", "tests/engine/cpu"),
}


def git(*arguments, check=True):
    """Returns git's output. Ends the program with git's error if git fails, unless not `check`."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=check, capture_output=True,
                              text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        sys.exit(f"changed.py: git cannot list the changed files: {reason.strip()}\n"
                 "Correct this, or run ./test without --quick, which needs no list.")


def changed_files():
    """Returns the paths of the changed files, sorted."""
    bases = (git("merge-base", "HEAD", main, check=False).strip()
             for main in ("origin/main", "main"))
    base = next(filter(None, bases), "HEAD")
    names = (git("diff", "--name-only", "--diff-filter=d", "-z", base)
             + git("ls-files", "-z", "--others", "--exclude-standard"))
    return sorted(set(filter(None, names.split("\0"))))


def has_tests(folder):
    return (ROOT / folder / "CMakeLists.txt").is_file()


def labels_of(files):
    """Returns the folders below tests/ whose programs test the files. They are labels of ctest."""
    labels = set()
    for file in files:
        path = pathlib.PurePosixPath(file)
        covered = next((COVERED_BY[str(folder)] for folder in path.parents
                        if str(folder) in COVERED_BY), None)
        if covered is None:
            tests = path if path.parts[0] == "tests" else "tests" / path
            folders = (str(folder) for folder in tests.parents if has_tests(folder))
            covered = (next(folders, "tests"),)
        labels.update(covered)
    return sorted(labels - {"tests"})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suffix", action="append", help="print only files with these suffixes")
    parser.add_argument("--labels", action="store_true",
                        help="print the labels of ctest that cover the files, joined by |")
    options = parser.parse_args()
    files = changed_files()
    if options.labels:
        print("|".join(labels_of(files)))
        return
    for file in files:
        if not options.suffix or pathlib.PurePath(file).suffix in options.suffix:
            print(file)


if __name__ == "__main__":
    main()
