#!/usr/bin/env python3
"""Embeds many documents as users do, and compares each way with one call that holds all of them.

Starts one sluiced with its default options and one gateway. The ways are one call for each document
by the Python clients (asyncio and blocking), by openai-python and by curl, and LangChain's
embed_documents. Each way must embed all documents without a failed call, and must reach
--least-share of the rate of one call with all documents, which runs before and after the ways. All
vectors must have the same bits. Ends with 1 otherwise.

The processor times per document of the caller, the gateway and the daemon show what a way costs
where they share the processors. Rates and times count only the embedded documents.
"""

import argparse
import asyncio
import base64
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLIENT = ROOT / "clients" / "python"
sys.path[:0] = [str(CLIENT), str(ROOT / "loadtest")]

import reporting  # noqa: E402
from programs import Process, free_port  # noqa: E402
from sluice_client import AsyncClient, Client, SluiceError  # noqa: E402
from sluice_client.gateway.hostile import Limits  # noqa: E402

MODEL = "documents"
THREADS = 64  # of the blocking client
CURLS = 64  # transfers of curl at a time
# A way returns the bytes of each document's vector, or None if its call failed.


def documents(count, words, seed):
    """Returns texts of random words from the pages in docs/."""
    draw = random.Random(seed)
    known = sorted({word for page in (ROOT / "docs").glob("*.md")
                    for word in re.findall(r"\b[a-z]{2,}\b", page.read_text())})
    return [" ".join(draw.choices(known, k=words)) for _ in range(count)]


def one_call(given, texts):
    with Client(given.grpc) as client:
        return [each.raw for each in client.embed(MODEL, texts).rows()]


def by_asyncio(given, texts):
    async def run():
        async with AsyncClient(given.grpc) as client:
            return await asyncio.gather(*(client.embed(MODEL, text) for text in texts),
                                        return_exceptions=True)

    return [None if isinstance(each, SluiceError) else each.raw for each in asyncio.run(run())]


def by_threads(given, texts):
    with Client(given.grpc) as client, concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        def embed(text):
            try:
                return client.embed(MODEL, text).raw
            except SluiceError:
                return None

        return list(threads.map(embed, texts))


def by_openai(given, texts):
    import numpy
    import openai

    async def run():
        async with openai.AsyncOpenAI(base_url=f"{given.http}/v1", api_key="none") as client:
            async def embed(text):
                try:
                    answer = await client.embeddings.create(model=MODEL, input=text)
                except openai.OpenAIError:
                    return None
                return numpy.float32(answer.data[0].embedding).tobytes()

            return await asyncio.gather(*map(embed, texts))

    return asyncio.run(run())


def by_langchain(given, texts):
    import numpy
    import openai
    from langchain_openai import OpenAIEmbeddings

    embeddings = OpenAIEmbeddings(model=MODEL, base_url=f"{given.http}/v1", api_key="none",
                                  check_embedding_ctx_length=False)
    try:
        vectors = embeddings.embed_documents(texts)
    except openai.OpenAIError:
        return [None] * len(texts)
    return [numpy.float32(each).tobytes() for each in vectors]


def by_curl(given, texts):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        transfers = []
        for i, text in enumerate(texts):
            body = {"model": MODEL, "input": text, "encoding_format": "base64"}
            (folder / f"{i}.json").write_text(json.dumps(body))
            transfers.append(f'url = "{given.http}/v1/embeddings"\n'
                             f'data = "@{folder}/{i}.json"\noutput = "{folder}/{i}.out"\n')
        (folder / "config").write_text("next\n".join(transfers))
        subprocess.run(["curl", "-sS", "--no-progress-meter", "--parallel", "--parallel-max",
                        str(CURLS), "--config", folder / "config"], check=False)

        def vector(i):
            try:
                answer = json.loads((folder / f"{i}.out").read_text())
                return base64.b64decode(answer["data"][0]["embedding"])
            except (OSError, KeyError, ValueError):
                return None

        return [vector(i) for i in range(len(texts))]


WAYS = {"asyncio": by_asyncio, "threads": by_threads, "openai": by_openai,
        "langchain": by_langchain, "curl": by_curl}


def processor_s(given):
    """Returns the processor times so far: of this process and its children, and of the others."""
    return {"caller": sum(os.times()[:4]), "gateway": given.gateway.cpu_s(),
            "daemon": given.daemon.cpu_s()}


def measure(given, name, way, texts, expected):
    """Returns a row: failed calls, vectors with other bits, embedded documents per second, and
    processor times per embedded document."""
    way(given, texts[:1])  # Imports libraries.
    used = processor_s(given)
    began = time.monotonic()
    vectors = way(given, texts)
    seconds = time.monotonic() - began
    used = {part: after - used[part] for part, after in processor_s(given).items()}
    failures = sum(each is None for each in vectors)
    embedded = len(texts) - failures
    return {
        **{f"{part}_ms": 1000 * each / max(embedded, 1) for part, each in used.items()},
        "way": name, "documents": len(texts), "seconds": seconds, "failures": failures,
        "wrong": sum(each not in (None, right) for each, right in zip(vectors, expected)),
        "per_s": embedded / seconds,
    }


def rows_of(given, count):
    """Yields the row of each way, with its share of the rate of one call."""
    texts = documents(count, given.words, given.seed)
    expected = one_call(given, texts)
    rows = [measure(given, "one call", one_call, texts, expected)]
    for name in given.ways:
        rows.append(measure(given, name, WAYS[name], texts, expected))
        print(json.dumps(rows[-1]), file=sys.stderr)
    rows.append(measure(given, "one call", one_call, texts, expected))
    whole = (rows[0]["per_s"] + rows[-1]["per_s"]) / 2
    for row in rows:
        yield {**row, "share": row["per_s"] / whole}


def table(given, rows):
    lines = [
        "# Ingestion",
        "",
        f"Documents of {given.words} words; a daemon with default options and one gateway, which"
        f" share {os.cpu_count()} processors with the callers ({reporting.processor()}). Rates and"
        " times count only the embedded documents. The share is of the rate of one call with all"
        " documents, the mean of two runs. The last columns are processor times per document.",
        "",
        "| documents | way | failed | other bits | documents/s | share | caller, ms | gateway, ms |"
        " daemon, ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {row['documents']} | {row['way']} | {row['failures']} | {row['wrong']} |"
              f" {row['per_s']:.1f} | {row['share']:.2f} | {row['caller_ms']:.1f} |"
              f" {row['gateway_ms']:.1f} | {row['daemon_ms']:.1f} |" for row in rows]
    if any(row["failures"] for row in rows):
        lines += ["", "The gateway refuses the calls of one caller above 76 % of its"
                  f" `--max-in-flight`, {given.max_in_flight:,} in this run. openai-python opens"
                  " 1,000 connections, and gives a call up after two repetitions."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sluiced", default=ROOT / "build" / "release" / "server" / "sluiced", help="the daemon")
    add("--model", type=pathlib.Path, required=True, help="folder of an embedding model")
    add("--documents", type=int, action="append", help="may be repeated; default 400 and 10000")
    add("--words", type=int, default=150, help="words of a document")
    add("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    add("--least-share", type=float, default=0.9)
    add("--seed", type=int, default=1)
    reporting.add_options(parser)
    given = parser.parse_args()
    given.grpc, http, metrics = (f"127.0.0.1:{free_port()}" for _ in range(3))
    given.http = f"http://{http}"
    given.max_in_flight = Limits().max_in_flight
    daemon = [given.sluiced, "--model", f"{MODEL}={given.model}", "--server.grpc.address",
              given.grpc, "--server.metrics.address", metrics, "--server.admin.address="]
    gateway = [sys.executable, "-m", "sluice_client.gateway", "--daemon", given.grpc, "--listen",
               http]
    with Process(daemon, f"http://{metrics}/readyz") as given.daemon, \
            Process(gateway, f"{given.http}/readyz") as given.gateway:
        rows = [row for count in given.documents or (400, 10_000)
                for row in rows_of(given, count)]
    report = {**reporting.heading("ingestion"),
              "options": reporting.options_of(given, "sluiced", "grpc", "http", "daemon",
                                              "gateway"), "rows": rows}
    reporting.write(given, report, table(given, rows))
    failed = [row for row in rows
              if row["failures"] or row["wrong"] or row["share"] < given.least_share]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
