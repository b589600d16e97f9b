#!/usr/bin/env python3
"""Plants small faults in folders, one per run, and reports the faults that the tests do not find.

    tools/plant.py engine/schedule --count 100 --seed 1

All faults are compiled at once into a copy of the tree, build/plant. The environment variable
SLUICE_PLANTED switches one of them on, so that trying a fault needs no build. First every suite
runs without a fault, which shows the faults that it reaches. Then the suites that reach a fault run
with it, the fastest first, until one fails, crashes, or runs for more than ten seconds and three
times its time without the fault.

tools/faults.py lists the kinds of faults. tests/planted.json has faults that are always planted by
--named, for example the wrong sign of a bucket. The copy keeps the results in build/verdicts.json.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from faults import ROOT, Fault, candidates, drawn, named, sources

COPY = ROOT / "build" / "plant"
# In the copy in which the faults are judged.
BUILD = ROOT / "build" / "release"
FAULTS = pathlib.Path("build", "faults.json")
SUITES = ROOT / "build" / "suites.json"
NAMED = ROOT / "tests" / "planted.json"
VERDICTS = ROOT / "build" / "verdicts.json"
PATIENCE_S = 900  # for a suite without a fault
# The libraries' assertions end a test that reads beyond an end or an absent member. A release build
# might not show such an error.
CHECKED = ["-DCMAKE_CXX_FLAGS=-w",
           "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1 -D_GLIBCXX_ASSERTIONS"]  # without NDEBUG


@dataclasses.dataclass
class Suite:
    """A unit that passes or fails: the tests of one name in a GoogleTest binary, a fuzz target on
    its corpus, or a file of end-to-end tests."""

    name: str  # changes if the program or the file changes
    command: list
    seconds: float = 0
    reached: list = dataclasses.field(default_factory=list)  # numbers of faults
    fails: str = ""  # without a fault


def copy_tree(faults, but):
    """Copies the tree with `faults` in it, but not the files in `but`. Keeps the times of unchanged
    files."""
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split("\0")
    changed = {}
    for fault in reversed(faults):
        data = changed.setdefault(fault.path, (ROOT / fault.path).read_bytes())
        changed[fault.path] = data[:fault.begin] + fault.text().encode() + data[fault.end:]
    for path in filter(None, listed):
        source, target = ROOT / path, COPY / path
        if not source.is_file() or path.startswith("loadtest/results") or path in but:
            continue
        data = source.read_bytes()
        if path in changed:
            header = b"" if path.endswith(".py") else b'#include "tools/planted.h"\n'
            data = header + changed[path]
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
    # Where the tests find the Python client (tests/e2e/conftest.py).
    shutil.copy2(ROOT / "tools" / "planted.py", COPY / "clients" / "python")


def build(names, end_to_end):
    """Builds the test programs whose names match the expression, or everything for end-to-end
    tests. Returns ctest's names of the programs, by their paths."""
    subprocess.run(["cmake", "--preset", "release", *CHECKED, "-DSLUICE_TESTS=ON",
                    "-DSLUICE_BENCHMARKS=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(["ninja", "-C", BUILD, "-t", "query", "sluice_tests"], check=True,
                            capture_output=True, text=True).stdout
    programs = [file for file in re.findall(r"^    (tests/\S+)$", listed, re.M)
                if re.match(names, pathlib.Path(file).name)]
    subprocess.run(["cmake", "--build", BUILD, "--parallel", str(os.cpu_count()), "--target",
                    *(["all"] if end_to_end else programs)], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True,
                            capture_output=True, text=True).stdout
    called = [each["command"] for each in json.loads(listed)["tests"] if "command" in each]
    return {pathlib.Path(command[0]): command for command in called
            if re.match(names, pathlib.Path(command[0]).name)}


def dated(file):
    return f"{file.name}@{int(file.stat().st_mtime)}"


def suites_of(commands):
    """Returns the suites of the programs that have faults in them."""
    found = []
    for file, command in sorted(commands.items()):
        if b"SluicePlanted" not in file.read_bytes():
            continue
        if not any(each.startswith("--gtest") for each in command):
            found.append(Suite(dated(file), command))
            continue
        tests = subprocess.run([file, "--gtest_list_tests"], check=True, capture_output=True,
                               text=True).stdout
        for name in re.findall(r"^(\S+)\.(?:\s*#.*)?$", tests, re.M):
            found.append(Suite(f"{dated(file)}:{name}", [str(file), "--gtest_fail_fast",
                                                         "--gtest_brief=1",
                                                         f"--gtest_filter={name}.*"]))
    return found


def end_to_end_suites(names):
    return [Suite(dated(file), [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider",
                                str(file)])
            for file in sorted((ROOT / "tests" / "e2e").glob("test_*.py"))
            if re.match(names, file.name)]


def ports():
    """Returns the name of a range of ports that no other job uses (tests/e2e/conftest.py)."""
    return f"gw{threading.current_thread().name.rpartition('_')[2]}"


def run(suite, number, bound, reached=""):
    """Returns the reason why the suite fails with the fault, or an empty text."""
    process = subprocess.Popen(suite.command, cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True,
                               env={**os.environ, "SLUICE_PLANTED": str(number),
                                    "SLUICE_REACHED": reached, "PYTEST_XDIST_WORKER": ports()})
    try:
        output, _ = process.communicate(timeout=bound)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"{suite.name} hangs"
    if process.returncode == 0:
        return ""
    failed = re.search(r"^(?:\[  FAILED  \]|FAILED) (\S+)", output, re.M)
    return f"{suite.name} {failed[1].rstrip(',') if failed else 'crashes'}"


def measure(suite, count):
    """Runs the suite without a fault, to get its time and the faults that it reaches."""
    with tempfile.NamedTemporaryFile() as marks:
        marks.write(bytes(count + 1))
        marks.flush()
        began = time.monotonic()
        suite.fails = run(suite, 0, PATIENCE_S, marks.name)
        suite.seconds = time.monotonic() - began
        suite.reached = [number for number, mark in enumerate(pathlib.Path(marks.name).read_bytes())
                         if mark]


def save(path, value):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.rename(path)  # so that the file is complete even if the run is killed


class Judge:
    """Tries faults with suites until the time `ends`, and saves the results in files."""

    def __init__(self, suites, jobs, ends):
        self._suites = suites
        self._jobs = jobs
        self._ends = ends
        self._lock = threading.Lock()
        self.faults = [Fault(**each) for each in json.loads((ROOT / FAULTS).read_text())]
        self.verdicts = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}

    def measure(self):
        """Measures the remaining suites. Returns whether there was enough time."""
        known = json.loads(SUITES.read_text()) if SUITES.exists() else {}

        def one(suite):
            if suite.name in known or self._late():
                return
            measure(suite, len(self.faults))
            with self._lock:
                known[suite.name] = dataclasses.asdict(suite)
                save(SUITES, known)

        self._each(one, self._suites)
        whole = all(suite.name in known for suite in self._suites)
        self._suites = [Suite(**known[each.name]) for each in self._suites if each.name in known]
        for suite in self._suites:
            if suite.fails:
                print(f"left out, because it fails without a fault: {suite.fails}")
        self._suites = [suite for suite in self._suites if not suite.fails]
        self._suites.sort(key=lambda suite: suite.seconds)
        return whole

    def judge(self):
        self._each(self._judge, self.faults)

    def survivors(self):
        """Returns the faults with which all suites passed."""
        return [fault for fault in self.faults
                if "killed" not in self._verdict(fault) and not self._left(fault)]

    def killed(self):
        return [fault for fault in self.faults if "killed" in self._verdict(fault)]

    def reaching(self, fault):
        return [suite for suite in self._suites if fault.number in suite.reached]

    def _late(self):
        return time.monotonic() > self._ends

    def _each(self, function, items):
        with concurrent.futures.ThreadPoolExecutor(self._jobs) as pool:
            list(pool.map(function, items))

    def _verdict(self, fault):
        return self.verdicts.get(str(fault.number), {})

    def _left(self, fault):
        passed = self._verdict(fault).get("passed", [])
        return [suite for suite in self.reaching(fault) if suite.name not in passed]

    def _judge(self, fault):
        verdict = dict(self._verdict(fault))
        if "killed" in verdict:
            return
        for suite in self._left(fault):
            if self._late():
                return
            why = run(suite, fault.number, max(10, 3 * suite.seconds))
            passed = [*verdict.get("passed", []), suite.name]
            verdict = {"killed": why} if why else {"passed": passed}
            with self._lock:
                self.verdicts[str(fault.number)] = verdict
                save(VERDICTS, self.verdicts)
            if why:
                return


def judge(arguments):
    """Builds the copy and judges the faults in it."""
    ends = time.monotonic() + (arguments.seconds or float("inf"))
    suites = suites_of(build(arguments.programs, arguments.end_to_end))
    suites += end_to_end_suites(arguments.programs) if arguments.end_to_end else []
    judge = Judge(suites, arguments.jobs, ends)
    if not judge.measure():
        return print("not all suites were measured; continue with --resume")
    judge.judge()
    survivors, killed = judge.survivors(), judge.killed()
    for fault in survivors:
        print(f"survived {len(judge.reaching(fault))} suites: {fault.number}: {fault}")
    print(f"{len(killed)} of {len(killed) + len(survivors)} killed, "
          f"{len(judge.faults) - len(killed) - len(survivors)} not judged")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--named", action="store_true",
                        help="plant the faults of tests/planted.json, each of which a test must "
                             "find")
    parser.add_argument("--list", action="store_true", help="show the faults and plant none")
    parser.add_argument("--plant-only", action="store_true", help="build and run nothing yet")
    parser.add_argument("--resume", action="store_true",
                        help="continue with the faults of build/plant; copies changed files "
                             "without faults, and tries survivors only with changed tests")
    parser.add_argument("--judge", action="store_true", help="build and run this tree, a copy")
    parser.add_argument("--end-to-end", action="store_true", help="run tests/e2e too, at the end")
    parser.add_argument("--programs", default="", metavar="EXPRESSION",
                        help="run only the suites of programs, and of end-to-end tests, whose "
                             "names begin with a match")
    parser.add_argument("--seconds", type=float, help="start no suite after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.judge:
        return judge(arguments)
    if arguments.resume:
        old = [Fault(**each) for each in json.loads((COPY / FAULTS).read_text())]
        copy_tree([], but={fault.path for fault in old})
    else:
        faults = named(NAMED) if arguments.named else drawn(
            candidates(sources(arguments.folders)), arguments.count, arguments.seed)
        if arguments.list:
            return print(*faults, sep="\n")
        shutil.rmtree(COPY, ignore_errors=True)
        copy_tree(faults, but=())
        (COPY / "build").mkdir()
        (COPY / FAULTS).write_text(json.dumps([dataclasses.asdict(each) for each in faults]))
    if not arguments.plant_only:
        options = [each for each in sys.argv[1:] if each == "--end-to-end"]
        options += [f"--jobs={arguments.jobs}", f"--programs={arguments.programs}"]
        options += [f"--seconds={arguments.seconds}"] if arguments.seconds else []
        subprocess.run([sys.executable, COPY / "tools" / "plant.py", "--judge", *options],
                       check=True)
    return None


if __name__ == "__main__":
    main()
