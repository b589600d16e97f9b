#!/usr/bin/env python3
"""Fails if the machine code of a CUDA kernel is worse than its budgets (kernels/cuda/sass.json).

The kernels are compiled for each of their architectures and disassembled, which needs no GPU. The
budgets are limits per kernel and architecture. They are upper limits on registers, bytes of spills,
compare-and-swap instructions, divisions in loops and narrow accesses. They are lower limits on
matrix products in the hot loop, matrices by ldmatrix and accesses of 16 bytes. In hot loops,
integer arithmetic, moves to uniform registers and copies by each thread are limited too. A figure
that is better than its budget does not fail but is reported. Messages of ptxas about serialised
products and ignored register limits are errors. The loops that the emulator counts must have the
same instructions in machine code (tools/sass_loops.py).

Sources are compiled only if they, a header or the compiler changed since the budgets were written
or since the last run (build/sass). --update writes the present figures as budgets. Some figures may
only improve: stack and spills, compare-and-swap, writes to registers that a queued product still
reads, uses of its sums, and divisions in loops. If one of them is worse, --update refuses unless
--accept-worse is given.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import sass
import sass_loops
from sass_budgets import KERNELS, TABLE, forbidden, judge, markdown, write_table

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The flags of the preset `cuda`, in addition to those of kernels/cuda/CMakeLists.txt.
PRESET_FLAGS = ["-O2", "-DNDEBUG"]


class Failure(Exception):
    """A message for the user."""


def digest(*parts):
    value = hashlib.sha256()
    for part in parts:
        text = part if isinstance(part, str) else json.dumps(part, sort_keys=True)
        value.update(text.encode() + b"\0")
    return value.hexdigest()[:16]


def device_text(path):
    """Returns a source as nvcc compiles it: without comments and the emulator's code."""
    text = re.sub(r"#ifdef SLUICE_SIMT\n(?:(?!#(?:if|else|endif)).*\n)*(?:#else\n"
                  r"((?:(?!#(?:if|else|endif)).*\n)*))?#endif", r"\1", path.read_text())
    text = re.sub(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/',
                  lambda found: found[1] or " ", text, flags=re.DOTALL)
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))


class Tree:
    """The CUDA sources of a tree and their compiler flags."""

    def __init__(self, root):
        self.root = root
        cmake = (root / KERNELS / "CMakeLists.txt").read_text()
        listed = (root / KERNELS / "sources.cmake").read_text()

        def setting(pattern):
            if not (found := re.search(pattern, cmake)):
                raise Failure(f"{KERNELS}/CMakeLists.txt: nothing matches {pattern}")
            return found[1]

        self.sources = re.findall(r"^\s*(\w+\.cu)\b", listed, re.MULTILINE)

        def names(variable):
            return [f"sm_{each}" for each in setting(variable + ' "([\\w;]+)"').split(";")]

        self.common = names("SLUICE_CUDA_ARCHITECTURES")
        self.architectures = dict.fromkeys(self.sources, self.common)
        # Sources that are tuned for one architecture are empty for others.
        if tuned := re.search(r"set\(SLUICE_HOPPER_KERNELS([^)]*)\)", listed):
            own = [each for each in names("SLUICE_HOPPER_ARCHITECTURES") if each.endswith("a")]
            self.architectures.update(dict.fromkeys(re.findall(r"\w+\.cu", tuned[1]), own))
        standard = setting(r"CUDA_STANDARD (\d+)")
        options = setting(r"target_compile_options\(\S+ PRIVATE ([^)]*)\)").split()
        self.flags = [f"-std=c++{standard}", *PRESET_FLAGS, *options]
        self._texts = {}  # the text and the included files of each file

    def texts(self, source):
        """Returns the text of a source and of the project's headers that it includes, by path."""
        texts, left = {}, [str(KERNELS / source)]
        while left:
            name = left.pop()
            if name in texts or not (self.root / name).is_file():
                continue
            if name not in self._texts:
                text = device_text(self.root / name)
                self._texts[name] = text, re.findall(r'^#include "(.*)"', text, re.MULTILINE)
            texts[name], included = self._texts[name]
            left += included
        return texts


class Toolkit:
    """nvcc and nvdisasm."""

    def __init__(self, nvcc, nvdisasm):
        self.nvcc, self.nvdisasm = nvcc or self._find("nvcc"), nvdisasm or self._find("nvdisasm")
        self.versions = [self._version(self.nvcc), self._version(self.nvdisasm)]
        self._kernels = {}  # of this run, by source and architecture

    @staticmethod
    def _find(name):
        for prefix in (pathlib.Path(sys.prefix), ROOT / "build" / "venv"):
            for path in prefix.glob(f"lib/python3*/site-packages/nvidia/cu13/bin/{name}"):
                return path
        raise Failure(f"no {name}: `pip install --no-deps -r tools/requirements-sass.txt` in "
                      f"build/venv, as ./test does, or name one (--{name})")

    @staticmethod
    def _run(*command, **options):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True, **options)
        except OSError as error:
            raise Failure(str(error)) from error
        except subprocess.CalledProcessError as error:
            words = " ".join(map(str, command))
            raise Failure(f"{words}\n{error.stdout}{error.stderr}") from error

    def _version(self, tool):
        said = self._run(tool, "--version").stdout
        if not (found := re.search(r"\bV(\d[\d.]*)", said)):
            raise Failure(f"{tool}: no version in\n{said}")
        return found[1]

    def kernels(self, tree, source, architecture):
        """Returns the resources and instructions of each kernel in a source, by its short name."""
        key = source, architecture
        if key not in self._kernels:
            self._kernels[key] = self._compile(tree, source, architecture)
        return self._kernels[key]

    def _compile(self, tree, source, architecture):
        with tempfile.TemporaryDirectory() as folder:
            cubin = pathlib.Path(folder) / "kernels.cubin"
            printed = self._run(
                self.nvcc, *tree.flags, "-I.",
                "-gencode=arch={0},code={1}".format(architecture.replace("sm", "compute"),
                                                    architecture), "-cubin", "-Xptxas", "-v",
                KERNELS / source, "-o", cubin, cwd=tree.root).stderr
            if bad := sass.bad_messages(printed):
                where = f"{KERNELS / source} for {architecture}"
                raise Failure("\n".join([f"{where}: ptxas does not run the products or set the "
                                         "registers as written:", *bad]))
            usage = sass.read_usage(printed)
            code = sass.read_sass(self._run(self.nvdisasm, "-c", cubin).stdout)
        names = self._run("c++filt", *usage).stdout.splitlines()
        text = "\n".join(tree.texts(source).values())
        kernels = {}
        for mangled, demangled in zip(usage, names):
            name = sass.short_name(demangled, text)
            if name in kernels:
                raise Failure(f"{KERNELS / source}: two kernels have the name {name}")
            kernels[name] = usage[mangled], code[mangled]
        return dict(sorted(kernels.items()))

    def figures(self, tree, source, architecture):
        """Returns the figures of each kernel in a source, by its short name."""
        return {name: {key: value for key, value in
                       sorted({**usage, **sass.figures_of(code)}.items()) if value}
                for name, (usage, code) in self.kernels(tree, source, architecture).items()}


class Measurement:
    """The figures of each source: from the table, from the last run, or by compiling."""

    def __init__(self, tree, toolkit, table, use_table):
        self.tree, self.toolkit, self.table, self.use_table = tree, toolkit, table, use_table
        self.folder = tree.root / "build" / "sass"
        self.compiled = set()

    def _inputs(self, source):
        reader = pathlib.Path(sass.__file__).read_text()
        return digest(reader, self.toolkit.versions, self.tree.flags, self.tree.texts(source))

    def table_digest(self, source, kernels):
        """Returns a digest of all inputs of the kernels' figures, and of the figures."""
        return digest(self._inputs(source), self.tree.architectures[source], kernels)

    def is_current(self, source):
        """Returns whether the table has this source's figures and nothing has changed since."""
        entry = self.table.get(source)
        return bool(entry) and entry["digest"] == self.table_digest(source, entry["kernels"])

    def _one(self, source, architecture):
        kept = self.folder / f"{source}-{architecture}-{self._inputs(source)}.json"
        if kept.exists():
            return json.loads(kept.read_text())
        began = time.monotonic()
        figures = self.toolkit.figures(self.tree, source, architecture)
        self.folder.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(figures))
        part.replace(kept)
        self.compiled.add(source)
        print(f"compiled {source} for {architecture}: {time.monotonic() - began:.1f} s",
              file=sys.stderr)
        return figures

    def figures(self, sources, jobs):
        """Returns {source: {kernel: {architecture: figures}}}."""
        current = {each for each in sources if self.use_table and self.is_current(each)}
        # Long sources take the longest to compile, so they start first.
        left = sorted(set(sources) - current, reverse=True,
                      key=lambda each: (self.tree.root / KERNELS / each).stat().st_size)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            found = {(source, architecture): pool.submit(self._one, source, architecture)
                     for source in left for architecture in self.tree.architectures[source]}
            try:
                found = {key: future.result() for key, future in found.items()}
            except Failure:
                pool.shutdown(cancel_futures=True)
                raise
        result = {}
        for source in sources:
            if source in current:
                result[source] = self.table[source]["kernels"]
                continue
            kernels = result[source] = {}
            for architecture in self.tree.architectures[source]:
                for kernel, figures in found[source, architecture].items():
                    kernels.setdefault(kernel, {})[architecture] = figures
        return result


class Loops:
    """The loops that the emulator counts, in machine code for compute capability 9.0."""

    def __init__(self, tree, toolkit):
        self.tree, self.toolkit = tree, toolkit
        self.rows = sass_loops.read_counts(tree.root)
        self.path = tree.root / sass_loops.TABLE
        self.changed = set()  # sources
        self.table = {}  # by kernel and step
        if self.path.exists():
            self.table = {sass_loops.key(each): each for each in json.loads(self.path.read_text())}

    def _digest(self, row):
        readers = [pathlib.Path(each.__file__).read_text() for each in (sass, sass_loops)]
        return digest(readers, self.toolkit.versions, self.tree.flags,
                      self.tree.texts(row["source"]), row)

    def _compile(self, row):
        architecture = next(each for each in self.tree.architectures[row["source"]]
                            if each.startswith("sm_90"))
        kernels = self.toolkit.kernels(self.tree, row["source"], architecture)
        code = kernels[row["kernel"]][1] if row["kernel"] in kernels else []
        return {**{name: row[name] for name in ("source", "kernel", "step")},
                "digest": self._digest(row), **(sass_loops.iteration(code, row) or {})}

    def check(self, sources, every):
        """Compiles the loops of `sources` that have changed since they were written, and all loops
        of the sources in `every`. Returns errors.
        """
        errors, table = [], {}
        for row in self.rows:
            entry = self.table.get(sass_loops.key(row))
            changed = entry is not None and entry["digest"] != self._digest(row)
            if row["source"] in every or row["source"] in sources and changed:
                entry = self._compile(row)
                self.changed |= {row["source"]} if changed else set()
            if entry is not None:
                table[sass_loops.key(row)] = entry
                error = sass_loops.judge(row, entry)
                errors += [error] if error else []
        self.table = table
        return errors

    def write(self):
        if self.rows:
            sass_loops.write_table(self.path, self.table.values())


def run(options):
    tree = Tree(options.root.resolve())
    if unknown := set(options.only) - set(tree.sources):
        raise Failure(f"not in {KERNELS}/sources.cmake: {', '.join(sorted(unknown))}")
    sources = sorted(options.only or tree.sources)
    toolkit = Toolkit(options.nvcc, options.nvdisasm)
    path = tree.root / TABLE
    written = json.loads(path.read_text()) if path.exists() else {"nvcc": None, "sources": {}}
    table = written["sources"]
    measurement = Measurement(tree, toolkit, table, not options.all)
    measured = measurement.figures(sources, options.jobs)
    if options.table:
        print(markdown(measured, tree.common))
        return
    loops = Loops(tree, toolkit)
    loop_errors = loops.check(sources, [source for source in sources if options.all or
                                        options.update and not measurement.is_current(source)])
    if options.update:
        if loop_errors:
            raise Failure("\n".join(loop_errors))
        worse = forbidden(measured, table)
        if worse and not options.accept_worse:
            raise Failure("\n".join([*worse, f"{TABLE} was not changed; --accept-worse writes "
                                             "these figures anyway"]))
        table = {source: entry for source, entry in table.items() if source in tree.sources}
        for source, kernels in measured.items():
            table[source] = {"digest": measurement.table_digest(source, kernels),
                             "kernels": kernels}
        write_table(path, toolkit.versions, table)
        loops.write()
        print("\n".join([*worse, f"wrote {TABLE}"]))
        return
    if toolkit.versions[0] != written["nvcc"]:
        print(f"note: the budgets are for nvcc {written['nvcc']}; this is {toolkit.versions[0]}")
    errors, hints = judge(measured, table)
    errors += loop_errors
    if not options.only:
        errors += [f"{TABLE} has budgets of {source}, which does not exist"
                   for source in sorted(set(table) - set(tree.sources))]
    for hint in hints:
        print(f"hint: {hint}")
    stale = [source for source in sources
             if not measurement.is_current(source) or source in loops.changed]
    if stale and not errors:
        print(f"hint: {', '.join(stale)} changed since the budgets were written; run "
              "tools/check_sass.py --update so that other machines need not compile them")
    if errors:
        raise Failure("\n".join(errors))
    kernels = sum(map(len, measured.values()))
    print(f"{kernels} kernels of {len(sources)} sources are within their budgets; "
          f"{len(measurement.compiled)} sources were compiled")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=ROOT, type=pathlib.Path,
                        help="the tree to check (default: this one)")
    parser.add_argument("--only", nargs="+", default=[], metavar="SOURCE",
                        help="sources to check, such as attention.cu (default: all)")
    parser.add_argument("--all", action="store_true",
                        help="also compile unchanged sources")
    parser.add_argument("--update", action="store_true", help="write the figures as budgets")
    parser.add_argument("--accept-worse", action="store_true",
                        help="let --update write worse spills and the like")
    parser.add_argument("--table", action="store_true", help="print the figures as Markdown")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="compilers to run at a time (default: one per processor)")
    parser.add_argument("--nvcc", help="the compiler (default: from requirements-sass.txt)")
    parser.add_argument("--nvdisasm", help="the disassembler (default: from the same file)")
    try:
        run(parser.parse_args())
    except Failure as failure:
        sys.exit(f"{failure}")


if __name__ == "__main__":
    main()
