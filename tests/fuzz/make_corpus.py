#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets from valid inputs: corpus/TARGET/seed_*. Findings
(corpus/TARGET/finding_*) are kept.

Needs the Python environment of the tests. `--all` also makes the seeds that differ in each run:
new certificates, and the journal and ladders of a short run of the daemon of the release build.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import re
import sys
import tempfile

from model_seeds import (model_config_seeds, model_files_seeds, pair_frame_seeds, quantized_seeds,
                         safetensors_seeds, tokenizer_seeds)
from request_seeds import config_seeds, parameters_seeds, request_seeds, wire_seeds

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
YEARS = 365 * 50
MAX_LEN = 8192  # of an input of libFuzzer, as in run.sh


def callers_seeds():
    token, digest = (
        b"0123456789abcdef",
        b"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    )
    yield "token", b"alice: token:" + token + b"\n"
    yield "hashed", b"# c\nalice: sha256:" + digest + b" requests_per_second=2 requests_burst=1e3\n"
    yield "certificate", b"b-1: certificate:batch.example.org tokens_per_second=0.5\r\n"
    yield "anonymous", (b"anonymous: none tokens_burst=7\nb: token:" + token +
                        b"\nb: certificate:b\n")


def certificate_seeds():
    """Yields certificates that stay valid for 50 years."""
    from authority import Authority

    authority = Authority(YEARS)
    certificate, key = authority.pair(days=YEARS)
    yield "pair", certificate + key
    yield "chain", certificate + authority.certificate + key
    yield "key", key
    yield "authority", authority.certificate


def json_seeds():
    yield "kinds", (b'{"a": [1, -2, 0.5, 1e3, true, false, null], "b": {"c": "d\\n\\u00e9\\ud83d'
                    b'\\ude00"}, "": [], "e": {}}')
    yield "numbers", b"[18446744073709551615, -9223372036854775808, 1e308, 5e-324, -0, 1E+2]"
    yield "texts", '["\u00e9\u4e2d\U0001f600", "\\"\\\\\\/\\b\\f\\r\\t", "a"]'.encode()
    yield "depth", b"[" * 12 + b'{"a":[1]}' + b"]" * 12
    yield "repeated", b'{"a": 1, "b": {"a": 2}, "a": 3}'


def text_seeds():
    """Yields a text for each tokenizer, by its number in text_fuzz.cc."""
    texts = itertools.cycle(["And it came to pass", "aaaa", "\u00e9\u4e2d 42!\n", "ab<s>  "])
    for number, text in zip(range(len(list(tokenizer_seeds()))), texts):
        yield str(number), bytes([number, 0, 0xFF]) + text.encode()


def einsum_seeds():
    """Yields the paper's cascades, the example of the notation, and forms missing from both."""
    folder = ROOT / "cascades" / "einsum"
    for name, text in re.findall(
        r'R"\(cascade (\w+)\n(.*?)\)"', (folder / "paper.cc").read_text(), re.DOTALL
    ):
        yield name, f"cascade {name}\n{text}".encode()
    header = (folder / "text.h").read_text().splitlines()
    example = itertools.dropwhile(lambda line: not line.startswith("//   "), header)
    example = itertools.takewhile(lambda line: line.startswith("//   "), example)
    yield "notation", "\n".join(line[5:] for line in example).encode()
    yield "shorthand", (
        "QK_{m,p : m ≤ p} = Q_{e,p} × K_{e,m}\nGM_p = QK_{m,p} :: ∨_m max(∪)\n"
        "SN_{m,p} = e^{QK_{m,p} − GM_p}\nSD_p = SN_{m,p}\nA_{m,p} = SN_{m,p} / SD_p\n"
        "AV_{f,p} = A_{m,p} · V_{f,m} :: ∧_m ×(∩)\n"
        "iterate i { init R_{i:i=0} = 0 R_{i+1} = max(R_i, B_i) } S_k[] = R_{I} Z = σ(S_k)\n"
    ).encode()
    yield "unicode", (
        "rank m = 4 rank n = n_2 rank k = n_2 / 2\n"
        "tensor A_{k,m} weight 2 bytes tensor B[k, n] tile tensor C arena\n"
        "Z_{m,n} = A_{k,m} · B_{k,n} :: ⋀_k ×(∩) ⋁_k +(∪)\n"
        "Y_{m} = A_{0,m} · C :: ⋀ −(←) unary exp where m ≤ 3, m-1 < end n-2*m\n"
        "X_{m} = -∞ · 2.5e-3 :: ⋀ max(1)\nW = C · 2 :: ⋀ ÷(∩) unary sqrt\n"
    ).encode()
    yield "iteration", (
        b"rank c = n iterate c { init R[0] = -inf R[c+1] = R[c] . 0.5 :: map min(all)\n"
        b"T[c] = R[c+1] :: unary tanh where c == 2 } # the end\nZ = R[end c]"
    )
    yield "gemm", b"bld,lde->ble"
    yield "implicit", b"ii"
    yield "sizes", b"b=8,l=256, head_dim=64"


def daemon_seeds():
    """Yields (target, name, bytes) from files of a short run of the daemon."""
    from conftest import Daemon
    from infer import ids_inputs, infer, text_inputs

    with tempfile.TemporaryDirectory() as folder:
        journal, ladder = (pathlib.Path(folder) / name for name in ("journal", "ladder"))
        daemon = Daemon(
            "--engine.history.journal", str(journal), "--engine.ladder.file", str(ladder)
        )
        with contextlib.ExitStack() as stack:
            stack.callback(daemon.stop)
            client = stack.enter_context(daemon.client())
            for length in (1, 5, 40):
                infer(client, ids_inputs([range(length), range(2)]), max_tokens=3)
            infer(client, text_inputs("And it came to pass"), max_tokens=4)
        lines = journal.read_bytes().splitlines(keepends=True)
        # As many lines as libFuzzer reads (run.sh).
        sizes = itertools.accumulate(map(len, lines))
        yield "journal", "run", b"".join(lines[:sum(size <= MAX_LEN for size in sizes)])
        yield "journal", "start", b"".join(lines[:2])
        document = json.loads(ladder.read_text())
        document.pop("for")
        yield "ladder", "run", json.dumps(document).encode()
        yield "ladder", "packed", json.dumps(document | {"ladder": {
            "tokens": [16, 24, 64], "sequences": [16, 24, 32], "positions": [0, 0, 0]}}).encode()
        yield "ladder", "padded", json.dumps(document | {"ladder": {
            "tokens": [2, 4, 4, 8], "sequences": [2, 4, 1, 2], "positions": [1, 1, 4, 4]}}).encode()


# The seeds of targets that are the same in each run.
SEEDS = {"callers": callers_seeds, "config": config_seeds, "einsum": einsum_seeds,
         "json": json_seeds, "model_config": model_config_seeds,
         "model_files": model_files_seeds, "pair_frame": pair_frame_seeds,
         "parameters": parameters_seeds, "quantized": quantized_seeds, "request": request_seeds,
         "safetensors": safetensors_seeds, "text": text_seeds, "tokenizer": tokenizer_seeds,
         "wire": wire_seeds}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("e2e", "support")]
    seeds = [(target, *seed) for target, make in SEEDS.items() for seed in make()]
    if parser.parse_args().all:
        seeds += [("certificate", *seed) for seed in certificate_seeds()]
        seeds += daemon_seeds()
    for target in {target for target, *_ in seeds}:
        for old in HERE.glob(f"corpus/{target}/seed_*"):
            old.unlink()
    for target, name, data in seeds:
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed_{name}").write_bytes(data)
    print(f"{len(seeds)} seeds, {sum(len(data) for *_, data in seeds)} bytes")


if __name__ == "__main__":
    main()
