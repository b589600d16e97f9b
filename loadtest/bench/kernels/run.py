#!/usr/bin/env python3
"""Compares the CPU kernels with the machine's peaks and with other libraries, in one report.

    cmake --build build/release --target attention_bench forward_bench gemm_bench onednn_bench \\
        rows_bench sample_bench top_k_bench
    build/venv/bin/python loadtest/bench/kernels/run.py --build build/release \\
        --torch-python PYTHON --onnx-python PYTHON --out loadtest/results/kernels

writes kernels.json and kernels.md. The first peer needs an interpreter with torch and transformers,
the second one with onnx and onnxruntime; a peer without an interpreter is skipped. Kernels
alternate with the probes of the peaks in one process. Peers and our benchmark alternate by round.
Figures are medians. The run takes some minutes on an idle machine; on a busy one only the ratios
are meaningful.
"""

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import random_llama
import report

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
import reporting  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
# The same values as in forward_bench.cc and attention_bench.cc.
LENGTHS = [16, 24, 32, 48, 64, 72, 112, 144]
ATTENTION = {"job": "attention", "sequences": 16, "length": 256, "q_heads": 8, "kv_heads": 2}
DECODE_CONTEXT = 127

# The binaries below the build folder, and a pattern of the benchmarks to run from each.
KERNELS = [
    (
        "loadtest/bench/kernels/gemm_bench",
        "PositionWise/profile:[1234]/threads:1/rows:(1|8|64)/.*matrices:64/",
    ),
    (
        "loadtest/bench/kernels/gemm_bench",
        "PositionWise/profile:[1234]/threads:2/rows:(1|8)/.*matrices:256/",
    ),
    (
        "loadtest/bench/kernels/gemm_bench",
        "(Cached/profile:[1234]/threads:1/rows:(4|64)/|Head/profile:[1234]/threads:2/rows:1/)",
    ),
    ("loadtest/bench/kernels/gemm_bench", "Encoder/profile:3/.*/rows:(64|128|256|1024)/"),
    ("loadtest/bench/kernels/gemm_bench", "Dense/profile:3/threads:1/rows:(1|8|64)/"),
    ("loadtest/bench/kernels/onednn_bench", "."),
    ("loadtest/bench/kernels/attention_bench", "BM_Prefill"),
    ("loadtest/bench/kernels/attention_bench", "BM_Decode/threads:2"),
    ("loadtest/bench/kernels/attention_bench", "BM_DecodeByType"),
    ("loadtest/bench/kernels/rows_bench", "."),
    ("loadtest/bench/kernels/sample_bench", "."),
    ("loadtest/bench/kernels/top_k_bench", "."),
]


def say(text):
    print(text, file=sys.stderr, flush=True)


def benchmark(build, binary, pattern, arguments=()):
    """Returns the counters, by name, of the benchmarks that match and that this machine can run."""
    command = [
        str(build / binary),
        *arguments,
        f"--benchmark_filter={pattern}",
        "--benchmark_format=json",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = json.loads(done.stdout)["benchmarks"]
    return {
        row["name"].split("/iterations:")[0]: row for row in rows if not row.get("error_occurred")
    }


class Peer:
    """A peer's interpreter that answers jobs; see peer_loop.py."""

    def __init__(self, python, script, model, threads):
        self._process = subprocess.Popen(
            [python, str(HERE / script), str(model), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.version = self._read()["version"]

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with status {self._process.wait()}")
        return json.loads(line)

    def seconds(self, job):
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["seconds"]

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def forward_job(dtype, padded, all_rows, times):
    return {
        "job": "forward",
        "dtype": dtype,
        "padded": padded,
        "all_rows": all_rows,
        "lengths": LENGTHS * times,
    }


def contests(threads):
    """Yields each contest: name, our benchmark (binary, name, counter), jobs by (peer, label)."""
    for name, times, all_rows in (("Score", 1, True), ("Next", 1, False), ("Next", 4, False)):
        if threads == 1 and (name, times) != ("Score", 1):
            continue
        jobs = {
            (peer, f"{dtype}, {'padded' if padded else 'one by one'}"): forward_job(
                dtype, padded, all_rows, times
            )
            for peer, dtype in (("torch", "bf16"), ("torch", "f32"), ("onnx", "f32"))
            for padded in (True, False)
            # bf16 takes minutes where it is slow. One by one gives the same as with times == 1.
            if times == 1 or (padded and dtype == "f32")
        }
        ours = (
            "loadtest/bench/engine/forward_bench",
            f"{name}/threads:{threads}/times:{times}",
            "forward_us",
        )
        yield f"{name}, {512 * times} tokens, {threads} threads", ours, jobs
    decode = {
        ("torch", dtype): {"job": "decode", "dtype": dtype, "context": DECODE_CONTEXT}
        for dtype in ("bf16", "f32")
    }
    ours = (
        "loadtest/bench/engine/forward_bench",
        f"Decode/threads:{threads}/context:{DECODE_CONTEXT}",
        "forward_us",
    )
    yield f"Decode, {threads} threads", ours, decode
    if threads == 1:
        shape = "threads:1/sequences:16/context:256/q_heads:8/kv_heads:2"
        ours = ("loadtest/bench/kernels/attention_bench", f"BM_Prefill/{shape}", "xsa_us")
        jobs = {
            ("torch", "SDPA, then the formula"): ATTENTION | {"xsa": True},
            ("torch", "the same, compiled"): ATTENTION | {"xsa": True, "compiled": True},
        }
        yield "Attention with XSA, 1 thread", ours, jobs


def contend(build, model, profile, contest, peers, rounds):
    """Returns the seconds of our benchmark and of each peer by round, and our last counters."""
    name, (binary, benchmark_name, counter), jobs = contest
    arguments = [str(model), profile] if binary.startswith("engine") else []
    jobs = {key: job for key, job in jobs.items() if key[0] in peers}
    seconds = {"ours": []} | {f"{peers[key[0]].version}, {key[1]}": [] for key in jobs}
    counters = []
    for number in range(rounds):
        say(f"{name}: round {number + 1} of {rounds}")
        row = benchmark(build, binary, f"^{benchmark_name}/iterations", arguments)[benchmark_name]
        counters.append(row)
        seconds["ours"].append(row[counter] / 1e6)
        for key, job in jobs.items():
            seconds[f"{peers[key[0]].version}, {key[1]}"].append(peers[key[0]].seconds(job))
    label = ", ".join([name, *filter(None, [counters[-1].get("label")])])
    return {
        "name": label,
        "seconds": seconds,
        "ours": counters[-1],
        "fractions": fractions(counters),
    }


def fractions(counters):
    """Returns the medians over the rounds of our fractions of the machine's peaks."""
    names = [name for name in counters[0] if name.endswith(("_of_flops", "_of_read"))]
    return {name: statistics.median(row[name] for row in counters) for name in names}


@contextlib.contextmanager
def started(arguments, model, threads):
    scripts = {"torch": "peer_torch.py", "onnx": "peer_onnx.py"}
    pythons = {"torch": arguments.torch_python, "onnx": arguments.onnx_python}
    with contextlib.ExitStack() as stack:
        peers = {}
        for name, python in pythons.items():
            if python:
                peers[name] = Peer(python, scripts[name], model, threads)
                stack.callback(peers[name].close)
        yield peers


def run_contests(arguments, model):
    results = []
    for threads in (1, 2):
        with started(arguments, model, threads) as peers:
            for contest in contests(threads):
                if not re.search(arguments.only, contest[0]):
                    continue
                # Only whole passes depend on the profile; the other contests always use the f32
                # kernels.
                whole = contest[1][0].startswith("engine")
                for profile in arguments.profiles if whole else ["auto"]:
                    results.append(
                        contend(arguments.build, model, profile, contest, peers, arguments.rounds)
                    )
    return results


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--torch-python", help="interpreter that has torch and transformers")
    parser.add_argument("--onnx-python", help="interpreter that has onnx and onnxruntime")
    parser.add_argument(
        "--profiles", nargs="+", default=["auto"], help="for whole passes, as in cpu.profile"
    )
    parser.add_argument("--rounds", type=int, default=3, help="in which ours and peers alternate")
    parser.add_argument(
        "--only", default="", help="only matching kernels (binary and pattern) and contests"
    )
    parser.add_argument(
        "--note", default="", help="a sentence for the report, such as other load on the machine"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, required=True, help="path of the report without .json, .md"
    )
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse(argv)
    kernels = {}
    for binary, pattern in KERNELS:
        if re.search(arguments.only, f"{binary} {pattern}"):
            say(f"{binary} {pattern}")
            kernels |= benchmark(arguments.build, binary, pattern)
    with tempfile.TemporaryDirectory() as model:
        random_llama.write(model)
        results = run_contests(arguments, model)
    made = {
        **reporting.heading("kernels"),
        "note": arguments.note,
        "rounds": arguments.rounds,
        "kernels": kernels,
        "contests": results,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(report.markdown(made))


if __name__ == "__main__":
    main()
