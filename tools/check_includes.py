#!/usr/bin/env python3
"""Fails on an #include that the layout of the tree forbids, and on a source that is not built.

FOLDERS lists, for each folder, the other folders whose headers it may include. A folder covers its
subfolders unless they have their own entry. The table must not have a cycle. Each source must be
named in a CMakeLists.txt or a file *.cmake of these folders.
"""

import argparse
import os
import pathlib
import re
import sys

ENGINE_VALUES = ["base", "kernels", "engine/model", "engine"]
PURE = [*ENGINE_VALUES, "engine/ladder", "engine/schedule", "engine/review"]
SERVER = ["base", "engine/model", "engine"]
PROTOCOL = [
    f"server/protocol/{folder}"
    for folder in ("parameters", "tensors", "text", "request", "reply", "describe")
]
EVERYTHING = None  # The entry of folders that may include any header: benchmarks and tests.

FOLDERS = {
    "base": [],
    "kernels": ["base"],
    "kernels/reference": ["base", "kernels"],
    "kernels/cpu": ["base", "kernels"],
    "kernels/simt": ["base"],
    "kernels/cuda": ["base", "kernels", "kernels/simt"],
    "engine/model/tokenizer": ["base"],
    # The host computes products of outputs with kernels/cpu on every device.
    "engine/model": ["base", "kernels", "kernels/cpu", "engine/model/tokenizer"],
    "engine": ["base", "kernels", "engine/model"],
    "engine/ladder": ENGINE_VALUES,
    "engine/schedule": [*ENGINE_VALUES, "engine/ladder"],
    "engine/review": [*ENGINE_VALUES, "engine/ladder", "engine/schedule"],
    "engine/journal": [*ENGINE_VALUES, "engine/ladder", "engine/schedule"],
    "engine/plans": [*PURE, "engine/journal"],
    "engine/rows": [*ENGINE_VALUES, "engine/model/tokenizer", "kernels/cpu"],
    "engine/runner/requests": [*PURE, "engine/journal", "engine/rows"],
    "engine/runner/steps": [
        *PURE,
        "engine/journal",
        "engine/plans",
        "engine/rows",
        "engine/runner/requests",
    ],
    "engine/runner/models": [
        *PURE,
        "engine/journal",
        "engine/plans",
        "engine/rows",
        "engine/runner/requests",
        "engine/runner/steps",
    ],
    "engine/cpu": [*ENGINE_VALUES, "kernels/cpu"],
    # engine/cuda has the pool of threads from kernels/cpu.
    "engine/cuda": [
        *ENGINE_VALUES,
        "kernels/reference",
        "kernels/cpu",
        "kernels/cuda",
        "kernels/simt",
    ],
    # No folder of the daemon may include cascades: the table gives it only to the client.
    "cascades/einsum": ["base"],
    "cascades": [*ENGINE_VALUES, "kernels/cpu", "cascades/einsum"],
    "proto": [],
    "server/common": [*SERVER, "proto"],
    "server/security": [*SERVER, "server/common"],
    "server/net/grpc_1_51": [*SERVER, "server/common", "server/security"],
    "server/net": [
        *SERVER,
        "server/common",
        "server/security",
        "server/net/grpc_1_51",
    ],
    "server/calls": [
        *SERVER,
        "proto",
        "server/common",
        "server/security",
        "server/net",
        "server/net/grpc_1_51",
    ],
    "server/observe": [
        *SERVER,
        "proto",
        "server/common",
        "server/security",
        "server/net",
        "server/net/grpc_1_51",
    ],
    "server/protocol/parameters": [*SERVER, "kernels", "proto", "server/common"],
    "server/protocol/tensors": [*SERVER, "kernels", "proto", "server/common"],
    "server/protocol/text": [*SERVER, "proto", "server/common", "server/protocol/tensors"],
    "server/protocol/request": [*SERVER, "kernels", "proto", "server/common", *PROTOCOL[:3]],
    "server/protocol/reply": [*SERVER, "proto", "server/common", *PROTOCOL[1:4]],
    "server/protocol/describe": [
        *SERVER,
        "proto",
        "server/common",
        "server/observe",
        "server/protocol/tensors",
    ],
    "server/models": [*SERVER, "proto", "server/common"],
    "server/inference": [
        *SERVER,
        "proto",
        "server/common",
        "server/security",
        "server/net",
        "server/net/grpc_1_51",
        "server/calls",
        "server/observe",
        *PROTOCOL,
        "server/models",
    ],
    "server/admin": [
        *SERVER,
        "proto",
        "server/common",
        "server/security",
        "server/net",
        "server/net/grpc_1_51",
        "server/calls",
        "server/observe",
        *PROTOCOL,
        "server/models",
        "server/inference",
    ],
    "server/daemon": [
        *SERVER,
        "config",
        "engine/cpu",
        "engine/cuda",
        "kernels/cpu",
        "proto",
        "server/common",
        "server/security",
        "server/net",
        "server/net/grpc_1_51",
        "server/calls",
        "server/observe",
        *PROTOCOL,
        "server/models",
        "server/inference",
        "server/admin",
    ],
    "config": ["base", "engine", "server/common"],
    "verify": [
        "base",
        "kernels",
        "kernels/cpu",
        "engine/model",
        "engine",
        "engine/rows",
        "engine/cpu",
    ],
    "client": [*PURE, "engine/journal", "proto", "config"],
    "client/analysis": [
        *PURE,
        "client",
        "cascades/einsum",
        "cascades",
        "engine/cpu",
        "kernels/cpu",
        "verify",
    ],
    "loadtest": EVERYTHING,
    "tests": EVERYTHING,
}

TOPS = sorted({folder.split("/")[0] for folder in FOLDERS})
SOURCES = ("*.h", "*.cc", "*.cu", "*.inc", "*.in")
# The name of a source in a CMakeLists.txt.
LISTED = re.compile(r'[^\s()"]+\.(?:cc|cu)\b')
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def folder_of(path):
    """Returns the entry of FOLDERS that covers a file, or None for a header of another project.

    A file of this project that no entry covers belongs to its own folder, which no other folder may
    include.
    """
    parents = [str(parent) for parent in pathlib.PurePosixPath(path).parents]
    for parent in parents:
        if parent in FOLDERS:
            return parent
    return parents[0] if path.split("/")[0] in TOPS else None


def find_cycle():
    """Returns a cycle of folders in FOLDERS, or None."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return [*path[path.index(folder):], folder]
        if folder in done:
            return None
        path.append(folder)
        for other in FOLDERS[folder] or []:
            if cycle := visit(other):
                return cycle
        path.pop()
        done.add(folder)
        return None

    for folder in FOLDERS:
        if cycle := visit(folder):
            return cycle
    return None


def forbidden(root):
    """Yields (file, line, included header, its folder) for each forbidden include under `root`."""
    for top in TOPS:
        for pattern in SOURCES:
            for file in sorted((root / top).rglob(pattern)):
                path = file.relative_to(root).as_posix()
                folder = folder_of(path)
                allowed = FOLDERS.get(folder, [])
                if allowed is EVERYTHING:
                    continue
                text = file.read_text(encoding="utf-8")
                for match in INCLUDE.finditer(text):
                    other = folder_of(match[1])
                    if other not in (None, folder, *allowed):
                        line = text.count("\n", 0, match.start(1)) + 1
                        yield path, line, match[1], other


def unlisted(root):
    """Yields each source under `root` that no list of CMake names. A variable or a generator
    expression in a name stands for any part of a file's name. The kernels' lists also name their
    emulations in the same folder below tests/."""
    lists = [file for top in [*TOPS, "cmake"] for name in ("CMakeLists.txt", "*.cmake")
             for file in (root / top).rglob(name)]
    patterns = set()
    for file in lists:
        for name in LISTED.findall(file.read_text(encoding="utf-8")):
            name = re.sub(r"^\$\{CMAKE_CURRENT_(?:LIST|SOURCE)_DIR\}/", "", name)
            folder = file.parent.relative_to(root)
            if name.startswith("${PROJECT_SOURCE_DIR}/"):
                folder, name = pathlib.Path(), name.partition("/")[2]
            path = os.path.normpath(folder / re.sub(r"\$<.*>|\$\{\w+\}", "*", name))
            patterns.add("(?:tests/)?" + re.escape(path).replace(r"\*", "[^/]+"))
    listed = re.compile("|".join(patterns)) if patterns else None
    for top in TOPS if listed else ():
        for pattern in ("*.cc", "*.cu"):
            for file in sorted((root / top).rglob(pattern)):
                path = file.relative_to(root).as_posix()
                if not listed.fullmatch(path):
                    yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent,
                        type=pathlib.Path, help="the tree to check (default: this one)")
    root = parser.parse_args().root
    if cycle := find_cycle():
        sys.exit(f"the table of tools/check_includes.py has a cycle: {' -> '.join(cycle)}")
    count = 0
    for path, line, header, other in forbidden(root):
        count += 1
        folder = folder_of(path)
        allowed = ", ".join(FOLDERS.get(folder, [])) or "no other folder"
        print(f"{path}:{line}: includes {header} of {other}/; {folder}/ may use {allowed}")
    not_built = list(unlisted(root))
    for path in not_built:
        print(f"{path}: no CMakeLists.txt names this source; list it in its folder's, or in the "
              "nearest one above")
    if not_built:
        sys.exit(f"{len(not_built)} sources are not built")
    if count:
        sys.exit(f"{count} forbidden includes; the layout is in ARCHITECTURE.md")


if __name__ == "__main__":
    main()
