#!/usr/bin/env python3
"""Compares calls through the HTTP gateway with the same calls by gRPC.

Starts one sluiced and one gateway and drives both from this process, in closed loops of 1 and 64
calls in flight. Each round has all cells, so that other work on the machine affects all of them.
The figures are medians over the rounds. CPU times are measured per process, so they do not depend
on how many processors the client, the gateway and the daemon share. With --other, calls through
the gateway of another version are compared as well, at the same daemon.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import time

import reporting
from programs import CLIENT, ROOT, Process, free_port
from sluice_client import AsyncClient

IN_FLIGHT = (1, 64)
OTHER = "HTTP, other version"
TASKS = ("embed", "generate")


class Grpc:
    """Makes calls with the Python client."""

    def __init__(self, address):
        self._client = AsyncClient(address)

    async def open(self):
        return self._client

    @staticmethod
    async def call(client, task, text, tokens):
        if task == "embed":
            return (await client.embed("demo", [text])).raw
        answer = await client.generate("demo", text, max_tokens=tokens, ignore_eos=True)
        return answer.text


class Http:
    """Makes calls by HTTP/1.1 on persistent connections, with little overhead."""

    def __init__(self, address):
        self._address = address.split(":")

    async def open(self):
        return await asyncio.open_connection(*self._address)

    @staticmethod
    async def call(connection, task, text, tokens):
        reader, writer = connection
        if task == "embed":
            path, body = "embeddings", {"input": text, "encoding_format": "base64"}
        else:
            path, body = "completions", {"prompt": text, "max_tokens": tokens, "temperature": 0,
                                         "ignore_eos": True}
        data = json.dumps({"model": "demo", **body}).encode()
        writer.write(b"POST /v1/%s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s"
                     % (path.encode(), len(data), data))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"gateway.py: {head!r}")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        return answer["data"] if task == "embed" else answer["choices"][0]["text"]


async def cell(way, task, in_flight, options, draw):
    """Returns the latencies of the calls that a closed loop completes in options.seconds."""
    latencies = []
    ends = time.monotonic() + options.seconds

    async def loop(connection):
        while (began := time.monotonic()) < ends:
            text = "".join(draw.choices("abcdefgh ", k=options.bytes))
            await way.call(connection, task, text, options.tokens)
            latencies.append(time.monotonic() - began)

    connections = [await way.open() for _ in range(in_flight)]
    await asyncio.gather(*map(loop, connections))
    for each in connections:
        if isinstance(each, tuple):
            each[1].close()
    return sorted(latencies)


async def measure(options, daemon, gateways, grpc_address):
    """Yields a row for each cell of each round; the first round warms up and is left out.

    `gateways` has the process and the address of the gateway of each way.
    """
    ways = {"gRPC": Grpc(grpc_address), **{name: Http(at) for name, (_, at) in gateways.items()}}

    def gateway_cpu_s(way):
        return gateways[way][0].cpu_s() if way in gateways else 0

    for number in range(options.rounds + 1):
        for task in TASKS:
            for in_flight in IN_FLIGHT:
                for name in random.Random(number).sample(list(ways), len(ways)):
                    before = daemon.cpu_s(), gateway_cpu_s(name)
                    draw = random.Random(f"{options.seed} {number} {task} {in_flight}")
                    latencies = await cell(ways[name], task, in_flight, options, draw)
                    after = daemon.cpu_s(), gateway_cpu_s(name)
                    if number == 0:
                        continue
                    calls = len(latencies)
                    yield {
                        "task": task, "in_flight": in_flight, "way": name, "calls": calls,
                        "calls_per_s": calls / options.seconds,
                        "p50_ms": 1e3 * latencies[calls // 2],
                        "p99_ms": 1e3 * latencies[min(calls - 1, calls * 99 // 100)],
                        "daemon_cpu_ms": 1e3 * (after[0] - before[0]) / calls,
                        "gateway_cpu_ms": 1e3 * (after[1] - before[1]) / calls,
                    }


def medians(rows):
    """Returns a row of medians for each cell."""
    made = []
    for task in TASKS:
        for in_flight in IN_FLIGHT:
            for way in dict.fromkeys(row["way"] for row in rows):
                of_cell = [row for row in rows
                           if (row["task"], row["in_flight"], row["way"]) == (task, in_flight, way)]
                median = {key: statistics.median(row[key] for row in of_cell)
                          for key in of_cell[0] if key not in ("task", "in_flight", "way")}
                made.append({"task": task, "in_flight": in_flight, "way": way, **median})
    return made


def ratios(summary, way):
    """Returns the calls per second by HTTP divided by those by `way`, for each kind of call."""
    rates = {(row["task"], row["in_flight"], row["way"]): row["calls_per_s"] for row in summary}
    return {f"{task} {in_flight}": rates[task, in_flight, "HTTP"] / rates[task, in_flight, way]
            for task in TASKS for in_flight in IN_FLIGHT}


def table(options, rows):
    what = {"embed": "one embedding", "generate": f"{options.tokens} tokens generated"}
    lines = [
        "# The gateway and gRPC",
        "",
        f"The demo model; prompts of {options.bytes} bytes; closed loops from one process, which"
        f" shares {os.cpu_count()} processors with gateway and daemon ({reporting.processor()})."
        f" Medians of {options.rounds} interleaved rounds of {options.seconds:g} s a cell, by"
        " `loadtest/gateway.py`. CPU is the CPU time of the process per call.",
        "",
        "| call | in flight | by | calls/s | p50 ms | p99 ms | daemon CPU ms | gateway CPU ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {what[row['task']]} | {row['in_flight']} | {row['way']} |"
            f" {row['calls_per_s']:.0f} | {row['p50_ms']:.2f} | {row['p99_ms']:.2f} |"
            f" {row['daemon_cpu_ms']:.3f} | {row['gateway_cpu_ms']:.3f} |")
    for way in dict.fromkeys(row["way"] for row in rows if row["way"] != "HTTP"):
        shown = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios(rows, way).items())
        lines += ["", f"Calls/s by HTTP divided by calls/s by {way}: {shown}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--sluiced", default=ROOT / "build" / "release" / "server" / "sluiced", help="the daemon")
    add("--model", default=ROOT / "models" / "demo", help="its model")
    add("--seconds", type=float, default=3, help="per cell")
    add("--rounds", type=int, default=5)
    add("--bytes", type=int, default=32, help="per prompt")
    add("--tokens", type=int, default=16, help="generated per call")
    add("--seed", type=int, default=1)
    add("--other", metavar="FOLDER", help="clients/python of another version, to compare with")
    reporting.add_options(parser)
    options = parser.parse_args()
    grpc_address, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    folders = {"HTTP": CLIENT, **({OTHER: options.other} if options.other else {})}
    gateways = {}

    async def collect():
        return [row async for row in measure(options, daemon, gateways, grpc_address)]

    with contextlib.ExitStack() as started:
        daemon = started.enter_context(Process(
            [options.sluiced, "--model", f"demo={options.model}", "--server.grpc.address",
             grpc_address, "--server.metrics.address", metrics, "--server.admin.address=",
             # Otherwise the second variant of a round would reuse the first one's prompts.
             "--engine.kv.prefix-reuse=false"], f"http://{metrics}/readyz"))
        for way, folder in folders.items():
            http_address = f"127.0.0.1:{free_port()}"
            command = [sys.executable, "-m", "sluice_client.gateway", "--daemon", grpc_address,
                       "--listen", http_address]
            gateway = Process(command, f"http://{http_address}/readyz", folder)
            gateways[way] = started.enter_context(gateway), http_address
        rows = asyncio.run(collect())
    summary = medians(rows)
    report = {"processor": reporting.processor(), "processors": os.cpu_count(),
              "seconds": options.seconds, "rounds": options.rounds, "bytes": options.bytes,
              "tokens": options.tokens, "seed": options.seed, "ratios": ratios(summary, "gRPC"),
              "medians": summary, "all": rows}
    reporting.write(options, report, table(options, summary))


if __name__ == "__main__":
    main()
