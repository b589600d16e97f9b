#!/usr/bin/env python3
"""Runs clang-tidy over the sources (not the tests) of a build directory.

Most of the time goes to system headers, so up to TOGETHER sources are checked as one unit. A unit
may fail only because two of its sources define the same name differently. Failing units are
therefore halved until single sources fail, and only their messages count. A source that passed is
not checked again until the source, a header or the checks change.
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("base", "cascades", "client", "config", "engine", "kernels", "server")
TOGETHER = 20  # The number of sources in a unit.
OF_GCC = ("-fpch-preprocess", "-fno-tree-loop-distribute-patterns")  # unknown to clang
INCLUDE = re.compile(r'^#include "(.*)"$', re.MULTILINE)


def is_checked(source):
    """Returns whether clang-tidy can read `source`.

    It cannot read the inner kernels, which use flags and vector types of GCC that clang does not
    know, nor the sources that need headers of the CUDA toolkit or of a sanitizer."""
    return (source.parts[0] in FOLDERS and source.suffix == ".cc"
            and source.parent != pathlib.Path("kernels/cpu/simd")
            and source not in (pathlib.Path("engine/cuda/cuda_device.cc"),
                               pathlib.Path("kernels/simt/fiber.cc")))


def flags_of(command):
    """Returns the parts of a compile command that affect parsing: macros, folders, the language."""
    words = iter(shlex.split(command)[1:])
    flags = []
    for word in words:
        if word == "-isystem":
            flags.append((word, next(words)))
        elif word.startswith(("-D", "-I", "-f", "-std=")) and word not in OF_GCC:
            flags.append((word,))
        elif word in ("-o", "-c", "-include"):  # The checks need no precompiled header.
            next(words)
    return flags


def sources_of(path):
    """Returns the sources that a command compiles: the file, or the sources of a unity build."""
    if path.parent.name != "Unity":
        return [path]
    return [pathlib.Path(name) for name in INCLUDE.findall(path.read_text())]


def read_build(build):
    """Returns the sources to check and all their flags, because no two targets' flags conflict."""
    sources, flags = set(), {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        found = [path.relative_to(ROOT) for path in sources_of(pathlib.Path(entry["file"]))
                 if path.is_relative_to(ROOT)]
        checked = list(filter(is_checked, found))
        if checked:
            sources.update(checked)
            flags.update(dict.fromkeys(flags_of(entry["command"])))
    return sorted(sources), list(itertools.chain.from_iterable(flags))


def digest(paths):
    value = hashlib.sha256()
    for path in paths:
        value.update(path.read_bytes())
    return value.hexdigest()[:16]


def headers():
    folders = FOLDERS + ("loadtest", "proto")
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in (".h", ".inc", ".proto"))


def tidy(tool, sources, flags, state):
    """Returns whether the sources have no findings, and clang-tidy's output."""
    unit = ROOT / sources[0]
    if len(sources) > 1:
        # The sources are copied, not included: some checks and warnings apply to the main file
        # only.
        unit = state / f"unit-{digest(ROOT / source for source in sources)}.cc"
        unit.write_text("\n".join((ROOT / source).read_text() for source in sources))
    command = [tool, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", str(unit), "--", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if len(sources) > 1:
        unit.unlink()
    return done.returncode == 0, done.stdout


def check(tool, sources, flags, state, passed):
    """Returns the messages about the sources, an empty string if there is no finding."""
    clean, messages = tidy(tool, sources, flags, state)
    if clean:
        for source in sources:
            passed(source)
        return ""
    if len(sources) == 1:
        return f"{messages}clang-tidy: {sources[0]}\n"
    middle = len(sources) // 2
    return (check(tool, sources[:middle], flags, state, passed)
            + check(tool, sources[middle:], flags, state, passed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--clang-tidy", default="clang-tidy", help="the program")
    parser.add_argument("--only", nargs="*", type=pathlib.Path, metavar="SOURCE",
                        help="check only these sources")
    options = parser.parse_args()
    build, tool = options.build.resolve(), options.clang_tidy
    state = build / "tidy"
    state.mkdir(exist_ok=True)
    common = digest(
        [
            ROOT / ".clang-tidy",
            pathlib.Path(__file__),
            ROOT / "tools" / "requirements-test.txt",
            *headers(),
        ]
    )

    def mark(source):
        return state / f"{digest([ROOT / source])}-{common}"

    sources, flags = read_build(build)
    if options.only is not None:
        sources = [source for source in sources if source in options.only]
    unread = [source for source in sources if not mark(source).exists()]
    units = [unread[first:first + TOGETHER] for first in range(0, len(unread), TOGETHER)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = pool.map(
            lambda unit: check(tool, unit, flags, state, lambda source: mark(source).touch()), units
        )
        failures = "".join(said)
    sys.stdout.write(failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
