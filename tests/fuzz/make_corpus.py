#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets from valid inputs: corpus/TARGET/seed_*.

Needs the release build and its Python environment, because the journal and ladder come from a short
run of the daemon. Findings (corpus/TARGET/finding_*) are kept.
"""

import contextlib
import itertools
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("e2e", "support")]

from tritonclient.grpc import service_pb2  # noqa: E402

from authority import Authority  # noqa: E402
from conftest import SLUICED, Daemon  # noqa: E402
from infer import ids_inputs, infer, text_inputs  # noqa: E402
from model_seeds import (  # noqa: E402
    model_config_seeds, pair_frame_seeds, quantized_seeds, safetensors_seeds, tokenizer_seeds)

YEARS = 365 * 50


def config_seeds():
    """Yields all options at their defaults, by section, and some other ways to write YAML."""
    printed = subprocess.run([SLUICED, "--print-config"], capture_output=True, text=True,
                             check=True).stdout
    lines = [line.split("  #")[0] for line in printed.splitlines()]
    sections = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    for begin, end in zip(sections, sections[1:] + [len(lines)]):
        yield lines[begin].split(":")[0], "\n".join(lines[begin:end]).encode()
    yield "models_flow", b"models: [{name: demo, path: ../models/demo, version: 3}]\n"
    yield "models_block", b'models:\n  - name: "a.b-c"\n    path: \'/x y\'\n'
    yield "flow", b'{"engine": {"ladder": {strategy: fixed, fixed_tokens: [16, 32]}}}\n'
    yield "units", (b"engine: {review: {}, batch: {max_queue_delay: 2 ms}}\n"
                    b"server:\n  log: {level: debug}\n")
    yield "old", (b"engine: {queue: {max_wait_us: 1s}, batch: {policy: cut_and_fill}}\n"
                  b"models: [{name: a, path: b, ladder: {whole_tiles: true}}]\n")
    yield "document", b"%YAML 1.2\n---\n# nothing\n...\n"
    yield "folded", b"models:\n- name: >-\n    demo\n  path: |-\n    /x\n"


def request(text=None, rows=((1, 2, 3),), typed=False, datatype="INT32", outputs=(), **parameters):
    message = service_pb2.ModelInferRequest(model_name="demo", id="seed")
    if text is not None:
        message.inputs.add(name="text_input", datatype="BYTES", shape=[len(text), 1])
        message.raw_input_contents.append(b"".join(struct.pack("<I", len(t)) + t for t in text))
    else:
        width = max(map(len, rows))
        ids = [token for row in rows for token in [*row, *[0] * (width - len(row))]]
        lengths = [len(row) for row in rows]
        code = {"INT32": "i", "INT64": "q"}[datatype]
        for name, kind, shape, values, letter in (
            ("input_ids", datatype, [len(rows), width], ids, code),
            ("input_lengths", "INT32", [len(rows), 1], lengths, "i"),
        ):
            tensor = message.inputs.add(name=name, datatype=kind, shape=shape)
            if typed:
                field = "int64_contents" if kind == "INT64" else "int_contents"
                getattr(tensor.contents, field).extend(values)
            else:
                message.raw_input_contents.append(struct.pack(f"<{len(values)}{letter}", *values))
    for name in outputs:
        message.outputs.add(name=name)
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[
            type(value)
        ]
        setattr(message.parameters[name], kind, value)
    return message.SerializeToString(deterministic=True)


def request_seeds():
    yield "ids", request()
    yield "ids64", request(datatype="INT64", rows=((1, 2), (3, 4, 5)))
    yield "typed", request(typed=True, rows=((1,), (2, 3)))
    yield "typed64", request(typed=True, datatype="INT64")
    yield "text", request(text=[b"In the beginning"])
    yield "texts", request(text=[b"a", b"", b"\xff\x00b"])
    yield "outputs", request(outputs=("logits", "output_ids", "prompt_logprobs", "xsa_cos_sim"))
    yield "top", request(num_top_logprobs=3, outputs=("top_ids", "top_logprobs"))
    yield "generate", request(
        text=[b"And"], max_tokens=16, temperature=0.7, top_p=0.9, top_k=40, seed=7
    )
    yield "stop", request(max_tokens=9, stop='["ab", "."]', stop_token_ids="[3, 4]", min_tokens=2)
    yield "edits", request(logit_bias='{"3": -1.5, "250": null}', allowed_token_ids="3,4,5")
    yield "limits", request(priority=2, timeout=1000000, triton_enable_empty_final_response=True)


def parameters_seeds():
    yield "numbers", b"max_tokens:i5\ntemperature:d0.5\ntop_k:u3\ntop_p:s0.9\nmin_p:d0"
    yield "flags", b"ignore_eos:b1\ntriton_enable_empty_final_response:i1"
    yield "lists", b'stop:s["a", "b\\n"]\nstop_token_ids:s[1, 2]\nallowed_token_ids:s1,2,7'
    yield "bias", b'logit_bias:s{"1": 1.5, "2": null, "4": "-inf"}\nmin_tokens:i1'
    yield "penalties", b"repetition_penalty:d1.1\npresence_penalty:s-2\nfrequency_penalty:i1"
    yield "schedule", b"priority:u1\ntimeout:s1000\nseed:u18446744073709551615\nnum_top_logprobs:i2"
    yield "bits", b"temperature:d" + struct.pack(
        "<d", float("nan")
    ) + b"\ntop_p:d\x00\x00\x00\x00\x00\x00\xf0?"
    yield "none", b"max_tokens:"


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
    for number, text in enumerate(["And it came to pass", "aaaa", "\u00e9\u4e2d 42!\n", "ab<s>  "]):
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
        yield "journal", "run", b"".join(lines[:40])
        yield "journal", "start", b"".join(lines[:2])
        document = json.loads(ladder.read_text())
        document.pop("for")
        yield "ladder", "run", json.dumps(document).encode()
        yield "ladder", "packed", json.dumps(document | {"ladder": {
            "tokens": [16, 24, 64], "sequences": [16, 24, 32], "positions": [0, 0, 0]}}).encode()
        yield "ladder", "padded", json.dumps(document | {"ladder": {
            "tokens": [2, 4, 4, 8], "sequences": [2, 4, 1, 2], "positions": [1, 1, 4, 4]}}).encode()


def main():
    seeds = [("safetensors", *seed) for seed in safetensors_seeds()]
    seeds += [("model_config", *seed) for seed in model_config_seeds()]
    seeds += [("pair_frame", *seed) for seed in pair_frame_seeds()]
    seeds += [("quantized", *seed) for seed in quantized_seeds()]
    seeds += [("config", *seed) for seed in config_seeds()]
    seeds += [("request", *seed) for seed in request_seeds()]
    seeds += [("parameters", *seed) for seed in parameters_seeds()]
    seeds += [("callers", *seed) for seed in callers_seeds()]
    seeds += [("certificate", *seed) for seed in certificate_seeds()]
    seeds += [("tokenizer", *seed) for seed in tokenizer_seeds()]
    seeds += [("json", *seed) for seed in json_seeds()]
    seeds += [("text", *seed) for seed in text_seeds()]
    seeds += [("einsum", *seed) for seed in einsum_seeds()]
    seeds += daemon_seeds()
    for old in HERE.glob("corpus/*/seed_*"):
        old.unlink()
    for target, name, data in seeds:
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed_{name}").write_bytes(data)
    print(f"{len(seeds)} seeds, {sum(len(data) for *_, data in seeds)} bytes")


if __name__ == "__main__":
    main()
