#!/usr/bin/env python3
"""Plants small faults in folders, one a run, and tells which ones their tests let through.

    tools/plant.py engine/schedule --count 100 --seed 1

All faults are compiled at once into a copy of the tree below build/plant, each behind a condition
that the environment variable SLUICE_PLANTED switches on, so that a fault costs a run of the tests
and no build. A fault is killed if a test fails, crashes or takes five times as long as without it.

The kinds: a comparison that takes or leaves the bound, or the opposite one; min for max; `or` for
`and`; a sum without its one; a statement that sets or resets a thing, dropped; two arguments of one
type, swapped. Code of constants and of headers is left alone.
"""

import argparse
import bisect
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "plant"
TREE = WORK / "tree"
BUILD = WORK / "build"
# The tests of a folder, by the longest path that matches, in the order in which they are run.
TESTS = {
    "base": ["base/sluice_base_test"],
    "config": ["config/config_test"],
    "engine/ladder": ["engine/sluice_schedule_test"],
    "engine/schedule": ["engine/sluice_paged_test", "engine/sluice_schedule_test"],
    "engine/review": ["engine/sluice_schedule_test", "engine/sluice_engine_test"],
    "engine/journal": ["engine/sluice_journal_test", "engine/sluice_engine_test"],
    "engine/plans": ["engine/sluice_engine_test"],
    "engine/rows": ["engine/sluice_states_test", "engine/sluice_engine_test",
                    "engine/sluice_engine_on_cpu_test"],
    "engine/runner": ["engine/sluice_history_test", "engine/sluice_engine_test"],
    "engine/model": ["engine/model/model_test", "engine/sluice_states_test",
                     "engine/sluice_engine_on_cpu_test"],
    "engine/model/tokenizer": ["engine/model/tokenizer/tokenize_test", "engine/model/model_test"],
    "server": ["server/sluice_edge_test", "server/sluice_server_test"],
    "server/calls": ["server/sluice_threads_test", "server/sluice_server_test"],
    "server/daemon": ["server/sluice_device_choice_test", "server/sluice_edge_test",
                      "server/sluice_server_test"],
    "server/protocol": ["server/sluice_outputs_test", "server/sluice_edge_test",
                        "server/sluice_server_test"],
    "server/security": ["server/sluice_security_test", "server/sluice_server_test"],
}
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||",
         "||": "&&"}
DROPPED_CALLS = {"clear", "reset", "erase", "pop_back", "pop_front"}


@dataclasses.dataclass
class Fault:
    path: str
    line: int
    begin: int  # bytes of the file
    end: int
    kind: str
    before: str
    after: str  # in place of `before`
    statement: bool = False  # whether it is a statement that is dropped
    number: int = 0

    def text(self):
        if self.statement:
            return f"if (!SluicePlanted({self.number})) {{ {self.before} }}"
        return f"(SluicePlanted({self.number}) ? ({self.after}) : ({self.before}))"

    def __str__(self):
        shown = "" if self.statement else f" -> {one_line(self.after)}"
        return f"{self.path}:{self.line}: {self.kind}: {one_line(self.before)}{shown}"


def one_line(text):
    return re.sub(r"\s+", " ", text)[:120]


def libclang():
    try:
        import clang.cindex
    except ImportError:
        sys.exit("plant.py: pip install libclang==18.1.1")
    return clang.cindex


class Finder:
    """Finds the places of one source at which a fault can be planted."""

    def __init__(self, cindex, path, arguments):
        self._kinds = cindex.CursorKind
        self._path = path
        self._data = (ROOT / path).read_bytes()
        self._unit = cindex.Index.create().parse(str(ROOT / path), args=arguments)
        self._lines = [match.start() for match in re.finditer(rb"\n", self._data)]
        self.found = []

    def run(self):
        source = str(ROOT / self._path)
        for cursor in self._unit.cursor.get_children():
            file = cursor.location.file
            if file is not None and file.name == source:
                self._walk(cursor, None)
        return self.found

    def _slice(self, begin, end):
        return self._data[begin:end].decode()

    def _walk(self, cursor, parent):
        kinds = self._kinds
        extent = cursor.extent
        if cursor.kind in (kinds.STATIC_ASSERT, kinds.CASE_STMT, kinds.ENUM_DECL):
            return
        if cursor.kind in (kinds.FUNCTION_DECL, kinds.CXX_METHOD, kinds.VAR_DECL):
            head = self._slice(extent.start.offset, extent.end.offset).split("{")[0]
            if "constexpr" in head or (cursor.kind == kinds.VAR_DECL and parent is not None and
                                       parent.kind == kinds.NAMESPACE):
                return
        self._look(cursor, parent)
        for child in cursor.get_children():
            self._walk(child, cursor)

    def _add(self, cursor, kind, after, statement=False, end=None):
        begin, end = cursor.extent.start.offset, end or cursor.extent.end.offset
        before = self._slice(begin, end)
        if "SLUICE_" in before or "{" in before and statement or not before.strip():
            return
        line = bisect.bisect_right(self._lines, begin) + 1
        self.found.append(Fault(self._path, line, begin, end, kind, before, after, statement))

    def _look(self, cursor, parent):
        kinds = self._kinds
        if parent is not None and parent.kind == kinds.COMPOUND_STMT:
            self._statement(cursor)
        if cursor.kind == kinds.BINARY_OPERATOR:
            self._operator(cursor)
        elif cursor.kind == kinds.CALL_EXPR:
            self._call(cursor)

    def _operator(self, cursor):
        parts = list(cursor.get_children())
        if len(parts) != 2:
            return
        left, right = parts
        operator = self._slice(left.extent.end.offset, right.extent.start.offset).strip()
        first = self._slice(left.extent.start.offset, left.extent.end.offset)
        second = self._slice(right.extent.start.offset, right.extent.end.offset)
        if operator in SWAPS:
            self._add(cursor, "comparison" if len(operator) < 3 and operator not in ("&&", "||")
                      else "condition", f"{first} {SWAPS[operator]} {second}")
        elif operator in ("+", "-") and second == "1":
            self._add(cursor, "bound", first)

    def _call(self, cursor):
        arguments = list(cursor.get_arguments())
        if len(arguments) < 2 or any(each is None for each in arguments):
            return
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self._slice(begin, end)
        if "std::move" in text or not text.endswith(")"):
            return
        if cursor.spelling in ("min", "max"):
            other = "max" if cursor.spelling == "min" else "min"
            found = re.match(rf"(std::(ranges::)?){cursor.spelling}\b", text)
            if found:
                self._add(cursor, "bound", found[1] + other + text[found.end():])
            return
        for one, two in zip(arguments, arguments[1:]):
            same = one.type.get_canonical().spelling == two.type.get_canonical().spelling
            spans = [(each.extent.start.offset, each.extent.end.offset) for each in (one, two)]
            texts = [self._slice(*span) for span in spans]
            if (not same or texts[0] == texts[1] or not all(texts) or "{" in "".join(texts)
                    or not begin < spans[0][0] <= spans[0][1] < spans[1][0] <= spans[1][1] < end):
                continue
            between = self._slice(spans[0][1], spans[1][0])
            if between.strip() != ",":
                continue
            swapped = (self._slice(begin, spans[0][0]) + texts[1] + between + texts[0]
                       + self._slice(spans[1][1], end))
            return self._add(cursor, "arguments", swapped)

    def _statement(self, cursor):
        kinds = self._kinds
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        stop = re.match(rb"\s*;", self._data[end:end + 20])
        if stop is None:
            return
        text = self._slice(begin, end)
        parts = list(cursor.get_children())
        sets = (cursor.kind == kinds.COMPOUND_ASSIGNMENT_OPERATOR
                or (cursor.kind == kinds.BINARY_OPERATOR and len(parts) == 2 and
                    self._slice(parts[0].extent.end.offset,
                                parts[1].extent.start.offset).strip() == "=")
                or (cursor.kind == kinds.UNARY_OPERATOR and ("++" in text or "--" in text))
                or (cursor.kind == kinds.CALL_EXPR and (cursor.spelling in DROPPED_CALLS
                                                        or cursor.spelling == "operator=")))
        if sets:
            self._add(cursor, "dropped", "", statement=True, end=end + stop.end())


def sources(folders):
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.split()
    return [path for path in listed if path.endswith(".cc")]


def candidates(paths):
    cindex = libclang()
    newest = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/clang/*"))[-1]
    arguments = ["-std=c++20", f"-I{ROOT}", f"-I{ROOT}/build/release", "-resource-dir", str(newest),
                 "-DSLUICE_SOURCE_DIR=\"\""]
    found = []
    for path in paths:
        found += Finder(cindex, path, arguments).run()
    return found


def drawn(found, count, seed):
    """Returns at most `count` faults that do not overlap, in the order of the files."""
    draw = random.Random(seed)
    draw.shuffle(found)
    chosen = []
    for fault in found:
        if len(chosen) == count:
            break
        if not any(other.path == fault.path and fault.begin < other.end and other.begin < fault.end
                   for other in chosen):
            chosen.append(fault)
    chosen.sort(key=lambda fault: (fault.path, fault.begin))
    for number, fault in enumerate(chosen, 1):
        fault.number = number
    return chosen


def plant(faults):
    """Copies the tree, with all of `faults` in it. Unchanged files keep their times."""
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split("\0")
    changed = {}
    for fault in reversed(faults):
        data = changed.setdefault(fault.path, (ROOT / fault.path).read_bytes())
        changed[fault.path] = data[:fault.begin] + fault.text().encode() + data[fault.end:]
    for path in filter(None, listed):
        source, target = ROOT / path, TREE / path
        if not source.is_file() or path.startswith("loadtest/results"):
            continue
        data = changed.get(path, source.read_bytes())
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
    (WORK / "faults.json").write_text(json.dumps([dataclasses.asdict(each) for each in faults]))


def tests_of(path):
    best = max((folder for folder in TESTS if path.startswith(folder)), key=len, default=None)
    return TESTS[best] if best else []


def build(binaries):
    flags = f"-w -include {ROOT}/tools/planted.h"
    subprocess.run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG", f"-DCMAKE_CXX_FLAGS={flags}",
                    "-DSLUICE_TESTS=ON", "-DSLUICE_BENCHMARKS=OFF"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--parallel", str(os.cpu_count()), "--target",
                    *sorted({pathlib.Path(each).name for each in binaries})],
                   check=True, stdout=subprocess.DEVNULL)


def run(binary, number, bound=None):
    """Returns why the tests of `binary` fail with the fault, or nothing, and the seconds taken."""
    began = time.monotonic()
    command = [BUILD / "tests" / binary, "--gtest_fail_fast", "--gtest_brief=1"]
    try:
        ended = subprocess.run(command, cwd=TREE, env={**os.environ, "SLUICE_PLANTED": str(number)},
                               capture_output=True, text=True, timeout=bound, errors="replace")
    except subprocess.TimeoutExpired:
        return f"{binary} hangs", time.monotonic() - began
    if ended.returncode == 0:
        return "", time.monotonic() - began
    failed = re.search(r"\[  FAILED  \] (\S+)", ended.stdout)
    return failed[1].rstrip(",") if failed else f"{binary} crashes", time.monotonic() - began


def judge(fault, times):
    for binary in tests_of(fault.path):
        why, _ = run(binary, fault.number, 10 + 5 * times[binary])
        if why:
            return why
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="show the faults and plant none")
    parser.add_argument("--plant-only", action="store_true", help="build and run nothing yet")
    parser.add_argument("--resume", action="store_true",
                        help="run the faults that build/plant has and that were not run yet")
    parser.add_argument("--seconds", type=float, help="begin no run after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    began = time.monotonic()
    verdicts = WORK / "verdicts.json"
    if arguments.resume:
        faults = [Fault(**each) for each in json.loads((WORK / "faults.json").read_text())]
    else:
        faults = drawn(candidates(sources(arguments.folders)), arguments.count, arguments.seed)
        if arguments.list:
            return print(*faults, sep="\n")
        plant(faults)
        verdicts.write_text("{}")
        if arguments.plant_only:
            return None
    binaries = sorted({each for fault in faults for each in tests_of(fault.path)})
    build(binaries)
    times = {}
    for binary in binaries:
        why, times[binary] = run(binary, 0)
        if why:
            sys.exit(f"plant.py: {why} without a fault")
    known = json.loads(verdicts.read_text())
    left = [fault for fault in faults if str(fault.number) not in known]

    def one(fault):
        if arguments.seconds and time.monotonic() - began > arguments.seconds:
            return None
        return judge(fault, times)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for fault, why in zip(left, pool.map(one, left)):
            if why is not None:
                known[str(fault.number)] = why
                verdicts.write_text(json.dumps(known))
    survivors = [fault for fault in faults if known.get(str(fault.number)) == ""]
    for fault in survivors:
        print(f"survived: {fault}")
    done = len(known)
    print(f"{done - len(survivors)} of {done} killed ({len(faults) - done} not run), "
          f"seed {arguments.seed}, {' '.join(arguments.folders)}")
    return None


if __name__ == "__main__":
    main()
