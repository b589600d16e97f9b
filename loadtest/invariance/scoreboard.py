#!/usr/bin/env python3
"""Counts the different answers that a request gets from Sluice and from libraries when it is
batched with different requests.

    build/venv/bin/python loadtest/invariance/scoreboard.py --python PYTHON --llama-python PYTHON \\
      --out loadtest/results/invariance.json --table loadtest/results/invariance.md

All contenders use the same random models from a seed. PYTHON has the packages of
loadtest/peers/requirements-encoders.txt and requirements-pytorch.txt; --llama-python has the
packages of requirements-llama_native.txt. Every request is answered once in each company (see
company.py). Libraries run in process and compute each group as one padded batch. Sluice gets each
group through gRPC as concurrent calls of one or more rows. Each arm is written to the file of --out
when it ends. --resume continues an interrupted run. --tasks and --only measure some arms again and
keep the others. The exit status is 1 if Sluice gave a request more than one answer.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import grpc
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent), str(HERE.parent / "peers"), str(HERE)]

import checkpoint  # noqa: E402
import company  # noqa: E402
import counting  # noqa: E402
import isa  # noqa: E402
import reporting  # noqa: E402
import servers  # noqa: E402
import sluice  # noqa: E402
import table  # noqa: E402
from contenders import NAMES, Arm, arms  # noqa: E402

LABELS = 8
DECODER = checkpoint.Shape(vocab=8192, hidden=256, intermediate=704, layers=4, heads=4, kv_heads=2,
                           dtype="bfloat16")
SETTINGS = ("threads", "seed", "count", "companies")  # shared by all arms of a report
PARTS = ("rows", "left_out", "does_not")  # counts, and the reasons for missing counts
VOCABULARIES = {"encoder": 30522, "classifier": 30522, "decoder": DECODER.vocab}


class Unanswered(Exception):
    """A contender that gave no answers; the message has the reason in one line."""


def write_checkpoint(model: str, options) -> None:
    """Writes the checkpoint of a kind of model if it is missing."""
    folder = options.models / model
    if (folder / "model.safetensors").exists():
        return
    if model == "decoder":
        code = (f"import sys, pathlib; sys.path.append({str(HERE.parent / 'peers')!r})\n"
                "import checkpoint\ncheckpoint.write(pathlib.Path(sys.argv[1]), "
                f"checkpoint.{DECODER!r}, {options.seed})")
        command = [options.python, "-c", code, folder]
    else:
        labels = LABELS if model == "classifier" else 0
        command = [options.python, HERE.parent / "peers" / "encoder.py", folder, "--size",
                   "minilm_l3", "--labels", str(labels)]
    subprocess.run(command, check=True)


def count(answers: dict[str, np.ndarray], task: company.Task) -> counting.Count:
    if "tokens" in answers:
        return counting.count_texts(answers["tokens"])
    labels = None if task.name == "embedding" else answers["labels"]
    return counting.count_values(answers["values"], labels, ranked=task.name == "embedding")


# The answers, the processor time, and the mean rows per step.
Answers = tuple[dict[str, np.ndarray], dict[str, float | None]]


def of_sluice(arm: Arm, options, scratch: pathlib.Path) -> Answers:
    texts = company.requests(options.count, VOCABULARIES[arm.task.model], options.seed)
    companies = company.companies([len(text) for text in texts], options.companies, options.seed)
    with sluice.Daemon(options.sluiced, options.models / arm.task.model, arm.precision,
                       options.threads, options.processors, scratch) as daemon:
        try:
            answers = sluice.answers_of(daemon, arm.task, texts, companies, options.seed)
        except grpc.RpcError as error:
            raise Unanswered(str(error)) from error
        return answers, {"cpu_s": daemon.cpu_seconds(), "rows_a_step": daemon.rows_of_a_step()}


def of_library(arm: Arm, options, scratch: pathlib.Path) -> Answers:
    out = scratch / "answers.npz"
    python = options.llama_python if arm.engine == "llama_cpp" else options.python
    if python is None:
        raise Unanswered("no --llama-python")
    try:
        isa.environment(isa.BEST, arm.engine, arm.precision, python)
    except servers.NotStarted as error:
        raise Unanswered(str(error)) from error
    command = [python, HERE / "answer.py", "--task", arm.task.name, "--engine",
               "onnxruntime" if arm.engine == "tei" else arm.engine, "--precision", arm.precision,
               "--checkpoint", options.models / arm.task.model, "--vocabulary",
               VOCABULARIES[arm.task.model], "--count", options.count, "--companies",
               options.companies, "--seed", options.seed, "--threads", options.threads, "--out",
               out, *(["--prefixes"] if arm.engine == "tei" else [])]
    try:
        ended = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=options.limit_s,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"no answers within {options.limit_s:g} s") from error
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise Unanswered(lines[-1].strip() if lines else f"ended with {ended.returncode}")
    with np.load(out) as made:
        answers = dict(made)
    return answers, {"cpu_s": float(answers.pop("cpu_s")), "rows_a_step": None}


def outcome_of(arm: Arm, options) -> tuple[str, dict | str]:
    """Returns the name of the arm's part in the report, and the arm's value there."""
    if arm.does_not:
        return "does_not", arm.does_not
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            kind = of_sluice if arm.engine == "sluice" else of_library
            answers, told = kind(arm, options, pathlib.Path(folder))
    except (Unanswered, servers.NotStarted, OSError) as error:
        return "left_out", str(error)[:200]
    return "rows", dataclasses.asdict(count(answers, arm.task)) | told | {
        "seconds": time.monotonic() - begun}


def words(part: str, outcome: dict | str) -> str:
    if part != "rows":
        return f"{part.replace('_', ' ')}: {outcome}"
    return (f"{outcome['changed']} of {outcome['requests']} requests changed, at most "
            f"{outcome['most_patterns']} answers ({outcome['seconds']:.0f} s)")


def earlier_of(options) -> dict[str, dict]:
    """Returns the tasks of the existing report. Its requests must be the same as in this run."""
    if not options.out or not options.out.exists():
        return {}
    earlier = json.loads(options.out.read_text())
    for name in SETTINGS:
        if earlier[name] != getattr(options, name):
            sys.exit(f"scoreboard.py: {options.out} has {name} {earlier[name]}, not "
                     f"{getattr(options, name)}; choose another file, or remove it")
    return earlier["tasks"]


def keep(tasks: dict[str, dict], arm: Arm, part: str, outcome: dict | str) -> None:
    """Puts the outcome of an arm into its part, in place of an earlier one."""
    task = tasks.setdefault(arm.task.name, {})
    for each in PARTS:
        task.setdefault(each, {}).pop(arm.name, None)
    task[part][arm.name] = outcome


def measure(options) -> dict:
    """Returns the report. Keeps the existing results of arms that are not measured now."""
    tasks = earlier_of(options)
    report = reporting.heading("invariance") | {
        name: getattr(options, name) for name in SETTINGS} | {
        "jobs": options.jobs, "contenders": NAMES, "tasks": tasks}
    asked = [arm for arm in arms(options.tasks, options.only)
             if not options.resume
             or arm.name not in tasks.get(arm.task.name, {"rows": ()})["rows"]]
    for model in dict.fromkeys(arm.task.model for arm in asked):
        write_checkpoint(model, options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        made = {pool.submit(outcome_of, arm, options): arm for arm in asked}
        try:
            for number, future in enumerate(concurrent.futures.as_completed(made), 1):
                arm, (part, outcome) = made[future], future.result()
                keep(tasks, arm, part, outcome)
                reporting.save(options, report)
                print(f"[{number}/{len(asked)}] {arm.task.name}, {arm.name}: "
                      f"{words(part, outcome)}", flush=True)
        except BaseException:  # such as an interrupt: arms that have not started are dropped
            pool.shutdown(cancel_futures=True)
            raise
    return report


def broken(report: dict) -> list[str]:
    """Returns the tasks in which Sluice gave a request more than one answer."""
    return [f"{name} ({task})" for task, made in report["tasks"].items()
            for name, row in made["rows"].items()
            if name.startswith("sluice") and row["most_patterns"] > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    processors = sorted(os.sched_getaffinity(0))
    parser.add_argument("--python", type=path, required=True, help="interpreter with the libraries")
    parser.add_argument("--llama-python", type=path, help="interpreter with llama-cpp-python")
    parser.add_argument("--sluiced", type=path,
                        default=ROOT / "build" / "release" / "server" / "sluiced")
    parser.add_argument("--models", type=path, default=ROOT / "build" / "peers" / "invariance",
                        help="folder for the random models")
    parser.add_argument("--tasks", nargs="+", choices=company.TASKS, default=list(company.TASKS))
    parser.add_argument("--only", nargs="+", help="contenders whose names contain one of these")
    parser.add_argument("--resume", action="store_true",
                        help="skip arms that the file of --out already has")
    parser.add_argument("--count", type=int, default=1000, help="requests of a task")
    parser.add_argument("--companies", type=int, default=4,
                        help="groupings of the requests; the first has each request by itself")
    parser.add_argument("--threads", type=int, default=1, help="per contender")
    parser.add_argument("--jobs", type=int, default=len(processors),
                        help="contenders that run at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=600, help="per library and task")
    reporting.add_options(parser)
    options = parser.parse_args()
    options.processors, options.models = processors, options.models.resolve()
    report = measure(options)
    reporting.write(options, report, table.markdown(report))
    if several := broken(report):
        sys.exit(f"scoreboard.py: several answers to a request from {', '.join(several)}")


if __name__ == "__main__":
    main()
