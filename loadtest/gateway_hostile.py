#!/usr/bin/env python3
"""Measures how hostile callers of the HTTP gateway affect honest ones.

Starts one sluiced and one gateway. Honest callers send embeddings and completions at a fixed rate.
Rounds alternate between two phases: next to hostile callers from other addresses, and next to a
process that sends nothing and uses as much processor time as the hostile callers used. Fails if a
call of an honest caller fails, or with --max-ratio if the 99th percentile of their latency next to
hostile callers is more than this multiple of the other one.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import reporting
from programs import ROOT, Process, free_port

HONEST = "127.0.0.1"
HOSTILE = ("127.0.0.2", "127.0.0.3")
HEAD = b"POST /v1/%s HTTP/1.1\r\nhost: a\r\n"


def post(path, body):
    return HEAD % path + b"content-length: %d\r\n\r\n%s" % (len(body), body)


def completion(**more):
    return json.dumps({"model": "demo", "prompt": "a" * 64, "max_tokens": 16, **more}).encode()


class Attacks:
    """Each method is one attack. It opens its own connections, and expects refusals."""

    def __init__(self, address, source):
        self._address = address
        self._source = source

    async def _open(self):
        host, port = self._address.split(":")
        return await asyncio.open_connection(host, int(port), local_addr=(self._source, 0))

    async def _send(self, *pieces, wait_s=1.0, answer=True):
        reader, writer = await self._open()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if answer:
                await asyncio.wait_for(reader.read(1 << 16), wait_s)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            writer.transport.abort()

    async def silent(self):
        await self._send(b"", wait_s=5)

    async def slow_body(self):
        await self._send(HEAD % b"completions" + b"content-length: 1000000\r\n\r\n" + b" " * 1000,
                         wait_s=10)

    async def tiny_chunks(self):
        await self._send(HEAD % b"completions" + b"transfer-encoding: chunked\r\n\r\n",
                         b"1\r\n \r\n" * 20_000)

    async def unterminated_texts(self):
        await self._send(post(b"completions", b'{"model": ' + b'"\\' * 12_000))

    async def many_values(self):
        await self._send(post(b"embeddings", b'{"input": [' + b'"ab",' * 65_000 + b'""]}'))

    async def padding(self):
        rows = [[1] * 30_000] + [[1]] * 2000
        await self._send(post(b"embeddings", json.dumps({"model": "demo", "input": rows}).encode()))

    async def copies(self):
        await self._send(post(b"completions", completion(prompt="a" * 1_000_000, n=16)))

    async def aborts(self):
        await self._send(post(b"completions", completion(max_tokens=200)), answer=False)

    async def many_answers(self):
        await self._send(post(b"completions", completion(n=16, logprobs=20)), wait_s=10)

    async def large_head(self):
        await self._send(b"GET /v1/models HTTP/1.1\r\nhost: a\r\nauthorization: " + b"a" * 12_000
                         + b"\r\n\r\n")

    async def pipelined(self):
        await self._send(post(b"completions", completion()) * 50)

    async def probes(self):
        await self._send(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")


NAMES = [name for name in vars(Attacks) if not name.startswith("_")]


async def attack(address, seconds, per_s, names):
    """Starts `per_s` attacks a second, drawn from `names`, and prints how many of each."""
    draw = random.Random(1)
    kinds = [Attacks(address, source) for source in HOSTILE]
    counts, running, ends = dict.fromkeys(names, 0), set(), time.monotonic() + seconds
    while time.monotonic() < ends:
        name = draw.choice(names)
        counts[name] += 1
        task = asyncio.ensure_future(getattr(draw.choice(kinds), name)())
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(draw.expovariate(per_s))
    for each in list(running):
        each.cancel()
    await asyncio.sleep(0)
    used = time.process_time()
    print(json.dumps({"counts": counts, "cpu_s": used}))


def burn(seconds, cpu_s):
    """Uses `cpu_s` of processor time in `seconds`, evenly."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        while time.process_time() < cpu_s * passed / seconds:
            pass
        time.sleep(0.005)


async def honest(address, seconds, per_s, latencies):
    """Sends calls at a fixed rate, each on a connection of its own. Returns the failures."""
    host, port = address.split(":")
    failed = []
    texts = random.Random(2)

    async def call():
        began = time.monotonic()
        text = "".join(texts.choices("abcdefgh ", k=32))
        if texts.random() < 0.5:
            request = post(b"completions", completion(prompt=text))
        else:
            request = post(b"embeddings", json.dumps({"model": "demo", "input": text}).encode())
        try:
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=(HONEST, 0))
            writer.write(request)
            status = await asyncio.wait_for(reader.readline(), 60)
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            status = repr(error).encode()
        if not status.startswith(b"HTTP/1.1 200"):
            failed.append(status.decode())
        latencies.append(time.monotonic() - began)

    calls = []
    for _ in range(int(seconds * per_s)):
        calls.append(asyncio.ensure_future(call()))
        await asyncio.sleep(1 / per_s)
    await asyncio.gather(*calls)
    return failed


def p99_ms(latencies):
    return 1e3 * sorted(latencies)[min(len(latencies) - 1, len(latencies) * 99 // 100)]


async def phase(arguments, address, seconds, per_s, latencies):
    """Runs the honest callers next to a child with these arguments. Returns failures, output."""
    child = subprocess.Popen([sys.executable, __file__, *map(str, arguments)],
                             stdout=subprocess.PIPE, text=True)
    failed = await honest(address, seconds, per_s, latencies)
    output = await asyncio.to_thread(child.communicate)
    return failed, output[0]


def memory_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def measure(options, address, gateway):
    hostile, quiet, failed, counts, cpu_s = [], [], [], {}, 0.0
    seconds = options.seconds / (2 * options.rounds)
    await honest(address, 1, options.per_s, [])  # warms up
    for _ in range(options.rounds):
        arguments = ["--attack", address, "--seconds", seconds,
                     "--attacks-per-s", options.attacks_per_s, "--kinds", *options.kinds]
        failures, output = await phase(arguments, address, seconds, options.per_s, hostile)
        result = json.loads(output)
        failed += failures
        cpu_s += result["cpu_s"]
        for name, count in result["counts"].items():
            counts[name] = counts.get(name, 0) + count
        failures, _ = await phase(["--burn", result["cpu_s"], "--seconds", seconds], address,
                                  seconds, options.per_s, quiet)
        failed += failures
    return {
        "seconds": options.seconds, "rounds": options.rounds, "honest_per_s": options.per_s,
        "attacks_per_s": options.attacks_per_s, "processors": os.cpu_count(),
        "processor": reporting.processor(), "calls": len(hostile) + len(quiet),
        "failed": len(failed), "failures": sorted(set(failed))[:10], "attacks": counts,
        "hostile_cpu_s": cpu_s, "p50_ms": {"hostile": 1e3 * sorted(hostile)[len(hostile) // 2],
                                           "quiet": 1e3 * sorted(quiet)[len(quiet) // 2]},
        "p99_ms": {"hostile": p99_ms(hostile), "quiet": p99_ms(quiet)},
        "ratio": p99_ms(hostile) / p99_ms(quiet), "memory_mib": memory_mib(gateway.process.pid),
    }


def table(report):
    attacks = ", ".join(f"{name} {count}" for name, count in report["attacks"].items())
    return "\n".join([
        "# Honest callers of the gateway next to hostile ones",
        "",
        f"The demo model; {report['honest_per_s']:g} honest calls/s, each on its own connection;"
        f" {report['attacks_per_s']:g} attacks/s from two other addresses; {report['rounds']}"
        f" rounds of both phases, {report['seconds']:g} s together;"
        f" {report['processors']} processors ({report['processor']}), shared by all processes; by"
        " `loadtest/gateway_hostile.py`. In the second phase, a process that sends nothing uses"
        f" the processor time of the hostile callers ({report['hostile_cpu_s']:.1f} s).",
        "",
        "| honest callers next to | p50 ms | p99 ms |",
        "|---|---|---|",
        f"| hostile callers | {report['p50_ms']['hostile']:.1f} |"
        f" {report['p99_ms']['hostile']:.1f} |",
        f"| the same processor time | {report['p50_ms']['quiet']:.1f} |"
        f" {report['p99_ms']['quiet']:.1f} |",
        "",
        f"The ratio of p99 is {report['ratio']:.2f}. Of {report['calls']} honest calls,"
        f" {report['failed']} failed. The gateway used at most {report['memory_mib']:.0f} MiB.",
        f"Attacks: {attacks}.",
    ]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--sluiced", default=ROOT / "build" / "release" / "server" / "sluiced", help="the daemon")
    add("--model", default=ROOT / "models" / "demo", help="its model")
    add("--seconds", type=float, default=600, help="of all phases together")
    add("--rounds", type=int, default=5)
    add("--per-s", type=float, default=20, help="calls of honest callers a second")
    add("--attacks-per-s", type=float, default=20)
    add("--kinds", nargs="+", choices=NAMES, default=NAMES, metavar="KIND",
        help="kinds of attacks, to find the cost of one; default: all: %(choices)s")
    add("--max-ratio", type=float, help="fail if the p99 next to hostile callers is larger")
    add("--attack", metavar="ADDRESS", help=argparse.SUPPRESS)
    add("--burn", type=float, metavar="SECONDS", help=argparse.SUPPRESS)
    reporting.add_options(parser)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.seconds, options.attacks_per_s, options.kinds))
        return
    if options.burn is not None:
        burn(options.seconds, options.burn)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    grpc_address, http_address, metrics, probes = (f"127.0.0.1:{free_port()}" for _ in range(4))
    of_daemon = [options.sluiced, "--model", f"demo={options.model}", "--server.grpc.address",
                 grpc_address, "--server.metrics.address", metrics, "--server.admin.address="]
    of_gateway = [sys.executable, "-m", "sluice_client.gateway", "--daemon", grpc_address,
                  "--listen", http_address, "--metrics", probes]
    with (Process(of_daemon, f"http://{metrics}/readyz"),
          Process(of_gateway, f"http://{probes}/readyz") as gateway):
        report = asyncio.run(measure(options, http_address, gateway))
    reporting.write(options, report, table(report))
    if report["failed"] or options.max_ratio and report["ratio"] > options.max_ratio:
        sys.exit(f"gateway_hostile.py: {report['failed']} honest calls failed"
                 f" {report['failures']}; ratio {report['ratio']:.2f}")


if __name__ == "__main__":
    main()
