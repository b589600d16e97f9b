#!/usr/bin/env python3
"""Measures health checks while callers send texts that take long to encode.

Starts a sluiced with a small model of 16,384 positions. Its tokenizer is a BPE without words, so
that a text of 16 MiB is one piece. Some callers send such texts, one call after another. At the
same time a health check is sent at a steady rate. Reports its latency with and without the other
callers. Needs tritonclient (build/venv has it).
"""

import argparse
import json
import pathlib
import tempfile
import threading
import time

import grpc
import numpy as np
import tritonclient.grpc as triton

import reporting
from bench.kernels import random_llama
from candidates import MODEL, figures
from overload import Daemon

POSITIONS = 16384
LONGEST = 1024  # bytes of a token, so that 16,384 positions allow a text of 16 MiB
SHAPE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
         "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 16,
         "max_position_embeddings": POSITIONS, "eos_token_id": 12}


def write_model(folder):
    powers = ["a" * 2**power for power in range(LONGEST.bit_length())]
    vocab = {token: number for number, token in enumerate([*powers, "b", "c"])}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": {
        "type": "BPE", "vocab": vocab, "merges": [f"{half} {half}" for half in powers[:-1]]}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    random_llama.write(folder, random_llama.CONFIG | SHAPE)


def send_texts(address, text, ended, outcomes):
    client = triton.InferenceServerClient(address)
    tensor = triton.InferInput("text_input", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text]], dtype=object))
    while not ended.is_set():
        try:
            client.infer(MODEL, [tensor], parameters={"max_tokens": 1})
            outcomes.append("ok")
        except triton.InferenceServerException as error:
            outcomes.append(f"{error.status()}: {error.message()}"[:160])


def health_ms(address, seconds, every_s):
    took = []
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            check(b"", timeout=60)
            took.append(1000 * (time.monotonic() - began))
            time.sleep(max(began + every_s - time.monotonic(), 0))
    return took


def measure(sluiced, folder, options):
    daemon = Daemon(sluiced, folder)
    ended, outcomes = threading.Event(), []
    text = b"ab" * (options.bytes // 2)
    try:
        alone = health_ms(daemon.grpc, options.seconds, options.every_ms / 1000)
        senders = [threading.Thread(target=send_texts, args=(daemon.grpc, text, ended, outcomes))
                   for _ in range(options.callers)]
        for sender in senders:
            sender.start()
        time.sleep(1)
        beside = health_ms(daemon.grpc, options.seconds, options.every_ms / 1000)
        ended.set()
        for sender in senders:
            sender.join()
    finally:
        ended.set()
        daemon.stop()
    return {"sluiced": sluiced.name, "alone": figures(alone), "beside_texts": figures(beside),
            "texts": {each: outcomes.count(each) for each in sorted(set(outcomes))}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluiced", type=pathlib.Path, required=True, action="append",
                        help="path of a daemon; several daemons alternate")
    parser.add_argument("--bytes", type=int, default=(16 << 20) - 256, help="per text")
    parser.add_argument("--callers", type=int, default=4, help="callers that send texts")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--every-ms", type=float, default=20, help="between health checks")
    parser.add_argument("--out", help="write the JSON report to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder))
        runs = [measure(sluiced, folder, options) for sluiced in options.sluiced]
    text = json.dumps({"benchmark": "hostile_texts", "options": reporting.options_of(options),
                       "runs": runs}, indent=1)
    if options.out:
        pathlib.Path(options.out).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
