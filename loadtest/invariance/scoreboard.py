#!/usr/bin/env python3
"""Counts how many different answers a request gets from Sluice, and from libraries, depending on
the requests that are computed with it.

    build/venv/bin/python loadtest/invariance/scoreboard.py --python PYTHON \\
      --out loadtest/results/invariance.json --table loadtest/results/invariance.md

Random models from a seed, the same for all; PYTHON has the packages of
loadtest/peers/requirements-encoders.txt and requirements-pytorch.txt, --llama-python those of
requirements-llama_native.txt. Every request is answered once in each company (see company.py): by
libraries in process, each group as one padded batch, and by Sluice through gRPC, each group from as
many callers at once.
"""

import argparse
import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent / "peers"), str(HERE)]

import checkpoint  # noqa: E402
import company  # noqa: E402
import counting  # noqa: E402
import servers  # noqa: E402
import sluice  # noqa: E402
import table  # noqa: E402

LABELS = 8
DECODER = checkpoint.Shape(vocab=8192, hidden=256, intermediate=704, layers=4, heads=4, kv_heads=2,
                           dtype="bfloat16")
ENCODER_VOCABULARY = 30522
SLUICE = ("f32", "bf16", "int8")
# Engine and precision; `tei` is onnxruntime in batches by TEI's rule.
ENCODERS = (("pytorch", "f32"), ("pytorch", "bf16"), ("onnxruntime", "f32"),
            ("onnxruntime", "int8"), ("tei", "f32"), ("openvino", "f32"), ("openvino", "bf16"),
            ("openvino", "int8"), ("ctranslate2", "f32"), ("ctranslate2", "int8"))
PEERS = {
    "embedding": (*ENCODERS, ("llama_cpp", "f32"), ("llama_cpp", "q8_0")),
    "classification": ENCODERS,
    "score": (("pytorch", "f32"), ("pytorch", "bf16"), ("onnxruntime", "f32"),
              ("onnxruntime", "int8"), ("openvino", "f32"), ("ctranslate2", "f32"),
              ("ctranslate2", "int8"), ("llama_cpp", "f32"), ("llama_cpp", "q8_0")),
    "text": (("pytorch", "f32"), ("pytorch", "bf16"), ("ctranslate2", "f32"),
             ("ctranslate2", "int8"), ("llama_cpp", "f32"), ("llama_cpp", "q8_0")),
}


class Peer(Exception):
    """A peer that gives no answers, with the reason in one line."""


def checkpoint_of(task: company.Task, options) -> tuple[pathlib.Path, int]:
    """Returns the folder and the vocabulary. Writes the checkpoint if it is missing."""
    folder = options.models / task.model
    if task.model == "decoder":
        if not (folder / "model.safetensors").exists():
            code = (f"import sys, pathlib; sys.path.append({str(HERE.parent / 'peers')!r})\n"
                    "import checkpoint\ncheckpoint.write(pathlib.Path(sys.argv[1]), "
                    f"checkpoint.{DECODER!r}, {options.seed})")
            subprocess.run([options.python, "-c", code, folder], check=True)
        return folder, DECODER.vocab
    if not (folder / "model.safetensors").exists():
        labels = LABELS if task.model == "classifier" else 0
        subprocess.run([options.python, HERE.parent / "peers" / "encoder.py", folder, "--labels",
                        str(labels)], check=True)
    return folder, ENCODER_VOCABULARY


def count(answers: dict[str, np.ndarray], task: company.Task) -> counting.Count:
    if "tokens" in answers:
        return counting.count_texts(answers["tokens"])
    labels = None if task.name == "embedding" else answers["labels"]
    return counting.count_values(answers["values"], labels, ranked=task.name == "embedding")


Answers = tuple[dict[str, np.ndarray], float | None]  # and the mean rows of a step, if told


def of_sluice(task: company.Task, precision: str, options, scratch) -> Answers:
    folder, vocabulary = checkpoint_of(task, options)
    texts = company.requests(options.count, vocabulary, options.seed)
    companies = company.companies([len(text) for text in texts], options.companies, options.seed)
    with sluice.Daemon(options.sluiced, folder, precision, options.threads, options.processors,
                       scratch) as daemon:
        answers = sluice.answers_of(daemon, task, texts, companies)
        rows = daemon.rows_of_a_step()
    return answers, rows


def of_peer(task: company.Task, engine: str, precision: str, options, scratch) -> Answers:
    folder, vocabulary = checkpoint_of(task, options)
    out = scratch / f"{task.name}-{engine}-{precision}.npz"
    python = options.llama_python if engine == "llama_cpp" else options.python
    if python is None:
        raise Peer("no --llama-python")
    command = [python, HERE / "answer.py", "--task", task.name, "--engine",
               "onnxruntime" if engine == "tei" else engine, "--precision", precision,
               "--checkpoint", folder, "--vocabulary", vocabulary, "--count", options.count,
               "--companies", options.companies, "--seed", options.seed, "--threads",
               options.threads, "--out", out, *(["--prefixes"] if engine == "tei" else [])]
    try:
        ended = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=options.limit_s,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    except subprocess.TimeoutExpired as error:
        raise Peer(f"no answers within {options.limit_s:g} s") from error
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise Peer(lines[-1].strip() if lines else f"ended with {ended.returncode}")
    with np.load(out) as answers:
        return dict(answers), None


def answers_of(task: company.Task, engine: str, precision: str, options) -> Answers:
    with tempfile.TemporaryDirectory() as folder:
        if engine == "sluice":
            return of_sluice(task, precision, options, pathlib.Path(folder))
        return of_peer(task, engine, precision, options, pathlib.Path(folder))


def known(options) -> dict:
    """Returns what the file has of each task, and {} where there is none."""
    if options.out and options.out.exists() and (text := options.out.read_text()):
        return json.loads(text)["tasks"]
    return {}


def store(task: str, part: str, name: str, made, options) -> None:
    """Adds a contender to the report, in the file too if there is one. Several runs may share a
    file.
    """
    with contextlib.ExitStack() as stack:
        if options.out:
            file = stack.enter_context(options.out.open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX)
        options.report |= {
            "benchmark": "invariance", "date": f"{datetime.date.today()}",
            "processor": table.processor(), "threads": options.threads, "seed": options.seed,
            "count": options.count, "companies": options.companies} | (
                {"tasks": known(options)} if options.out else {})
        kept = options.report.setdefault("tasks", {}).setdefault(
            task, {"rows": {}, "left_out": {}})
        for each in kept.values():
            each.pop(name, None)
        kept[part][name] = made
        if options.out:
            file.truncate(0)
            file.write(json.dumps(options.report, indent=1) + "\n")
            file.flush()


def measure(options) -> dict:
    """Returns the report. What is not measured now keeps what the file has."""
    options.report = {}
    contenders = [(task, *each) for task in (company.TASKS[name] for name in options.tasks)
                  for each in [*(("sluice", kind) for kind in SLUICE), *PEERS[task.name]]
                  if not options.engines or each[0] in options.engines]
    for task, engine, precision in contenders:
        name = f"{engine} {precision}"
        if options.resume and name in known(options).get(task.name, {"rows": {}})["rows"]:
            continue
        print(f"{task.name}: {name}", flush=True)
        try:
            answers, rows = answers_of(task, engine, precision, options)
            part, made = "rows", dataclasses.asdict(count(answers, task)) | {"rows_a_step": rows}
        except (Peer, servers.NotStarted, OSError) as error:
            part, made = "left_out", str(error)[:200]
        print(f"  {part}: {made}", flush=True)
        store(task.name, part, name, made, options)
    return options.report or json.loads(options.out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--python", type=path, required=True, help="interpreter of the libraries")
    parser.add_argument("--llama-python", type=path, help="interpreter with llama-cpp-python")
    parser.add_argument("--sluiced", type=path,
                        default=ROOT / "build" / "release" / "server" / "sluiced")
    parser.add_argument("--models", type=path, default=ROOT / "build" / "peers" / "invariance",
                        help="folder for the random models")
    parser.add_argument("--tasks", nargs="+", choices=company.TASKS, default=list(company.TASKS))
    parser.add_argument("--engines", nargs="+", help="only these: sluice, pytorch, ...")
    parser.add_argument("--count", type=int, default=1000, help="requests of a task")
    parser.add_argument("--companies", type=int, default=5,
                        help="in which each is answered; in the first one, alone")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each processor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=600, help="of a library and a task")
    parser.add_argument("--resume", action="store_true",
                        help="leave out what the file of --out has already")
    parser.add_argument("--out", type=path,
                        help="write the JSON report to this file, keeping what it has of others")
    parser.add_argument("--table", type=path, help="write the counts as Markdown to this file")
    options = parser.parse_args()
    options.processors = sorted(os.sched_getaffinity(0))
    options.threads = options.threads or len(options.processors)
    options.models = options.models.resolve()
    text = table.markdown(measure(options))
    if options.table:
        options.table.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
