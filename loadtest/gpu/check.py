"""Checks and times the CUDA engine on a GPU, part by part, within a budget of time.

gpu_check.sh finds or builds the programs and calls this. A part or a case that fails, hangs or
crashes does not affect the others. results.py describes the output. Exit status: 0 if all
succeeded, 1 if a part or a case failed, 3 if there is no device.
"""

import argparse
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import daemon_cases
import report
import trace_cases
from cases import Runner, bench_event, gtest_event, gtest_names
from results import NO_TIME, Results

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REHEARSED_TESTS = "DiverseGuardTest.*:PoolTest.*:CudaModelTest.ASlot*"
SANITIZED_TESTS = ("Divers*:RowOps*:ExcludeSelf*:Projection*:FewRows*:GatedFewRows*:Route*:"
                   "Experts*:Sample*:Attention*")
# The launches that ncu profiles: a name for the files, the kernel, and the case.
PROFILED = [
    ("decode_attention", "Attention", "attention, decode; 64 x 1 of 2048, 32/8 heads of 128 bf16"),
    ("prefill_attention", "Attention",
     "attention, prefill; 8 x 2048 of 2048, 32/8 heads of 128 bf16"),
    ("dense_64", "FewRows", "dense projection; L1 B64 4096 x 4096 bf16"),
    ("dense_8192", "Projection", "dense projection; L1 B8192 4096 x 4096 bf16"),
    ("plain_draw", "Sample", "sampling, plain temperature; 64 x 128256 float"),
    ("top_p", "Sample", "sampling, top-p 0.9; 1024 x 32768 float"),
    ("tuned_prefill", "HopperAttention",
     "attention, prefill, hopper; 8 x 2048 of 2048, 32/8 heads of 128 bf16"),
    ("tuned_dense_64", "HopperProjection", "dense projection, hopper; L1 B64 4096 x 4096 bf16"),
    ("tuned_dense_8192", "HopperProjection", "dense projection, hopper; L1 B8192 4096 x 4096 bf16"),
]


class Check:
    """The state that the parts share: programs, results and the remaining time."""

    def __init__(self, programs, environment, device, results, give_up, rehearsal, trace=None):
        self.programs = programs
        self.root = ROOT
        self.ours = environment  # of Sluice's programs; others have their own libraries
        self.device = device
        self.results = results
        self.rehearsal = rehearsal
        self.trace = trace  # the file of --trace
        self.give_up = give_up
        self.deadline = give_up
        self.library = device.get("library", "")
        self.failed = False
        self.part = ""
        self.case = ""

    def program(self, name):
        return self.programs / name

    def scale(self, seconds=0.01):
        return ["--rehearse", "--seconds", str(seconds)] if self.rehearsal else []

    def add(self, case, outcome, seconds, **record):
        if outcome.startswith(("failed", "crashed", "hung")):
            self.failed = True
            print(f"   {case}: {outcome}", flush=True)
        self.results.add(part=self.part, case=case, outcome=outcome, seconds=round(seconds, 3),
                         **record)

    def run(self, names, command, event, *, limit_s, environment=None, **options):
        """Runs the cases without an outcome and returns the part's outcome."""
        limit_s = float(os.environ.get("SLUICE_GPU_CHECK_CASE_S", limit_s))  # for tests
        settled = self.results.settled(self.part)
        wanted = [name for name in names if name not in settled]

        def take(end, seconds):
            self.add(end.case, end.outcome, seconds, **end.record)

        runner = Runner(command, event, take, log=self.results.log, limit_s=limit_s,
                        deadline=self.deadline, environment=environment or self.ours, **options)
        return self.outcome(names, runner.run(wanted))

    def outcome(self, names, left):
        bad = [
            record["case"] for record in self.results.records
            if record.get("part") == self.part and record.get("case") in names
            and record["outcome"].startswith(("failed", "crashed", "hung"))
        ]
        texts = [f"{len(bad)} of {len(names)} failed"] if bad else []
        texts += [f"{NO_TIME} for {len(left)} of {len(names)}"] if left else []
        return "; ".join(texts) or "ok"

    def output(self, command, limit_s, path=None, environment=None):
        """Runs a command to its end and returns its output, or raises. No process of it is left,
        such as the program that a profiler started."""
        limit_s = max(1.0, min(limit_s, self.deadline - time.monotonic()))
        process = subprocess.Popen([str(word) for word in command], env=environment or self.ours,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=self.results.log.file, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if path is not None:
            path.write_bytes(output)
        if process.returncode != 0:
            raise RuntimeError(f"{pathlib.Path(str(command[0])).name} "
                               f"ended with status {process.returncode}")
        return output.decode(errors="replace")


def bench_part(limit_s):
    """Makes a part from gpu_bench's cases of the same name."""

    def run(check):
        scale = check.scale()
        bench = check.program("gpu_bench")
        listed = check.output([bench, "list", check.part, *scale], 30).splitlines()
        names = [json.loads(line)["case"] for line in listed]
        return check.run(names, lambda left: [bench, "run", *scale, *left], bench_event,
                         limit_s=limit_s)

    return run


def kernel_table(check):
    lines = check.output([check.program("gpu_bench"), "table", *check.scale()], 30).splitlines()
    for line in lines:
        launch = json.loads(line)
        name = f"{launch['kernel']}, {launch['threads']} threads, {launch['shared_bytes']} bytes"
        outcome = f"failed: {launch['problem']}" if "problem" in launch else "ok"
        check.add(f"{name}; {launch['case']}", outcome, 0, launch=launch)
    if shutil.which("cuobjdump") and not check.rehearsal:
        check.output(["cuobjdump", "--dump-resource-usage", check.program("gpu_bench")], 30,
                     check.results.raw / "resource_usage.txt")
    return "ok"


def gtest_part(program, wanted="*", library=None, tool=None, limit_s=60):
    """Makes a part from the tests of a program: those for the library's profiles, or the others."""

    def run(check):
        if tool is not None and (check.rehearsal or not shutil.which("compute-sanitizer")):
            return "not measured: no compute-sanitizer with a GPU"
        if library and not check.library:
            return "not measured: no cuBLASLt"
        path = check.program(program)
        chosen = REHEARSED_TESTS if check.rehearsal else wanted
        listing = check.output([path, "--gtest_list_tests", f"--gtest_filter={chosen}"], 30)
        names = [
            name for name, parameter in gtest_names(listing)
            if library is None or library == ("cublaslt" in parameter)
        ]
        if not names:
            return "not measured: no such tests"
        prefix = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no"] if tool else []

        def command(left):
            return [*prefix, path, "--gtest_filter=" + ":".join(left)]

        def fault_of(line):
            text = line.removeprefix("========= ")
            told = text != line and text.startswith(("Invalid", "Error", "Race", "Warning",
                                                     "Uninitialized", "Barrier", "Program hit"))
            return f"{tool}: {text}" if told else None

        os.chdir(ROOT)  # The tests read goldens there.
        return check.run(names, command, gtest_event, limit_s=limit_s, one_failure_each=True,
                         watch=fault_of if tool else None)

    return run


def peers(check):
    if check.rehearsal:
        return "not measured: no GPU"
    script = [sys.executable, HERE / "torch_peers.py"]
    # PyTorch has its own libraries.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    try:
        names = check.output([*script, "list"], 60, environment=environment).split()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"not measured: no PyTorch with a GPU: {error}"
    return check.run(names, lambda left: [*script, "run", *left], bench_event, limit_s=80,
                     environment=environment)


def tune(check):
    if not check.library:
        return "not measured: no cuBLASLt"
    seconds = 60 if check.rehearsal else max(10.0, check.deadline - time.monotonic() - 15)
    scale = ["--rehearse"] if check.rehearsal else []
    path = check.results.raw / "algorithms.json"
    check.output([check.program("gpu_bench"), "tune", *scale, "--seconds", f"{seconds:.0f}"],
                 seconds + 30, path)
    table = json.loads(path.read_text())
    name = report.algorithms_name(table)
    shutil.copyfile(path, check.results.out / name)
    check.add(name, "ok", 0, layers=len(table["layers"]))
    return "ok"


def profiles(check):
    if check.rehearsal or not shutil.which("ncu"):
        return "not measured: no ncu with a GPU"
    names = [name for name, _, _ in PROFILED]
    settled, left = check.results.settled(check.part), []
    for name, kernel, case in PROFILED:
        if name in settled:
            continue
        if check.deadline - time.monotonic() < 12:
            left.append(name)
            continue
        began = time.monotonic()
        file = check.results.raw / f"ncu_{name}"
        try:
            check.output(["ncu", "--set", "full", "--clock-control", "none", "--kernel-name",
                          f"regex:^{kernel}Kernel", "--launch-count", "1", "--force-overwrite",
                          "--export", file, check.program("gpu_bench"), "launch", case], 45)
            text = check.output(["ncu", "--import", f"{file}.ncu-rep", "--page", "details"], 20,
                                file.with_suffix(".txt"))
            outcome = "ok" if "Duration" in text else "failed: no launch was profiled"
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            outcome = f"failed: {error}"
        check.add(name, outcome, time.monotonic() - began)
    return check.outcome(names, left)


def daemon(check):
    return daemon_part(check, daemon_cases.CASES)


def trace(check):
    with trace_cases.Traces(check.trace) as traces:
        cases = [(name, functools.partial(traces.run, model=model, product=product, ladder=ladder))
                 for name, model, product, ladder in trace_cases.cases()]
        return daemon_part(check, cases[:2] if check.rehearsal else cases)


def daemon_part(check, cases):
    if not check.program("sluiced").exists():
        return "not measured: no daemon next to the programs"
    settled, left = check.results.settled(check.part), []
    names = [name for name, _ in cases]
    for name, run in cases:
        if name in settled:
            continue
        if check.deadline - time.monotonic() < 5:
            left.append(name)
            continue
        began = time.monotonic()
        end = daemon_cases.run_case(name, run, check)
        check.add(end.case, end.outcome, time.monotonic() - began, **end.record)
    return check.outcome(names, left)


# The parts in order of importance, each with the most seconds that it may take: first whether the
# kernels are right, then the evidence for buckets, then how fast kernels and steps are and why.
PARTS = {
    "kernel-tests": (80, gtest_part("kernels_test", limit_s=15)),
    "buckets": (140, bench_part(60)),
    "ceilings": (15, bench_part(15)),
    "products": (60, bench_part(12)),
    "draws": (25, bench_part(15)),
    "rows": (15, bench_part(15)),
    "ncu": (120, profiles),
    "steps": (120, bench_part(60)),
    "engine-own": (60, gtest_part("backend_test", library=False, limit_s=25)),
    "engine-cublaslt": (60, gtest_part("backend_test", library=True, limit_s=25)),
    "tune": (40, tune),
    "table": (10, kernel_table),
    "plans": (30, bench_part(30)),
    "memcheck": (30, gtest_part("kernels_test", SANITIZED_TESTS, tool="memcheck")),
    "racecheck": (30, gtest_part("kernels_test", SANITIZED_TESTS, tool="racecheck")),
    "trace": (160, trace),
    "daemon": (80, daemon),
    "peers": (110, peers),
}
# These run only if --only names them: PyTorch's figures do not change on the same card.
ON_REQUEST = {"peers"}


def environment_of(programs):
    """Returns the environment in which Sluice's programs find their libraries. cuBLASLt comes with
    the CUDA toolkit or with PyTorch.
    """
    libraries = [str(programs / "lib"), os.environ.get("LD_LIBRARY_PATH"), "/usr/local/cuda/lib64"]
    try:
        import nvidia
        libraries.append(str(pathlib.Path(next(iter(nvidia.__path__))) / "cu13" / "lib"))
    except (ImportError, StopIteration):
        pass
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}


def describe_device(programs, environment):
    """Returns the device, or None after a message if there is none."""
    found = subprocess.run([programs / "gpu_bench", "device"], env=environment, timeout=60,
                           capture_output=True, text=True)
    if found.returncode == 0:
        return json.loads(found.stdout)
    print(f"gpu_check: {found.stderr.strip()}", file=sys.stderr)
    if found.returncode != 3:
        sys.exit(1)
    return None


def driver_text():
    query = ["nvidia-smi", "--format=csv,noheader",
             "--query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw"]
    try:
        return subprocess.run(query, capture_output=True, text=True,
                              timeout=20).stdout.splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return ""


def run_part(check, name, share):
    """Runs a part for at most `share` times the seconds in the table."""
    most_s, run = PARTS[name]
    results, began, mark = check.results, time.monotonic(), check.results.log.mark()
    check.part = name
    check.deadline = min(check.give_up, began + most_s * share)
    results.log.write(f"\n==== {name}\n")
    if check.deadline - began < 3:
        outcome = f"not measured: {NO_TIME}"
    else:
        try:
            outcome = run(check)
        except subprocess.TimeoutExpired as error:
            outcome = f"failed: longer than {error.timeout:.0f} s"
        except Exception as error:  # A part's failure must not stop the other parts.
            outcome = f"failed: {type(error).__name__}: {error}"
    if outcome.startswith("failed"):
        check.failed = True
        print(results.log.since(mark, 1500), flush=True)
    results.add(part=name, outcome=outcome, seconds=round(time.monotonic() - began, 1))
    print(f"-- {name}: {outcome} ({time.monotonic() - began:.0f} s)", flush=True)
    results.log.copy(mark, results.raw / f"{name}.log")
    report.write(results.out)
    results.pack()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--budget", type=float, default=530, help="seconds")
    parser.add_argument("--resume", type=pathlib.Path, help="folder of an earlier run")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--trace", type=pathlib.Path, help="CSV for the part trace")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name] or [
        name for name in PARTS if name not in ON_REQUEST]
    if unknown := set(only) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; use some of {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    share = max(1, arguments.budget / sum(PARTS[name][0] for name in only))
    if arguments.rehearse:
        share = arguments.budget  # The emulator is slow, and its machine may be busy.
    give_up = time.monotonic() + arguments.budget
    programs = arguments.programs.resolve()
    environment = environment_of(programs)
    device = describe_device(programs, environment)
    if device is None:
        return 3
    results = Results(arguments.out.resolve(), arguments.resume)
    check = Check(programs, environment, device, results, give_up, arguments.rehearse,
                  arguments.trace)
    results.add(device=device, machine=driver_text(), rehearsal=check.rehearsal)
    try:
        for name in PARTS:
            if name in only:
                run_part(check, name, share)
        results.add(machine_after=driver_text())
    finally:
        text = report.write(results.out)
        results.close()
    print(text, end="")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
