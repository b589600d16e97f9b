#!/usr/bin/env python3
"""Runs mixed clients against one daemon for a long time and checks its memory and descriptors.

    build/venv/bin/python loadtest/soak.py --seconds 1200 --out loadtest/results/soak

writes soak.csv (a sample each second) and soak.html (the plot) and prints the verdict. Exits with 1
if the soak failed: an answer changed, a call ended in a wrong way, memory grew, descriptors stayed
open, or an admitted request did not end.
"""

import argparse
import csv
import http.client
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "loadtest")]

import numpy as np  # noqa: E402

import soak_chart  # noqa: E402
import soak_clients  # noqa: E402
from always import balanced  # noqa: E402
from conftest import Daemon  # noqa: E402

COLUMNS = (
    "seconds",
    "rss_mib",
    "descriptors",
    "threads",
    "calls",
    "admitted",
    "ended",
    "waiting",
    "running",
)
# The share of the time in which the daemon still touches memory for the first time.
WARM_UP = 0.25
# The most that the fitted line may rise over the remaining time, as a share of the used memory.
MOST_GROWTH = 0.03
WINDOWS = 10
SAMPLES_EVERY_S = 1.0
# The errors of reading a process that has ended.
GONE = (OSError, KeyError, http.client.HTTPException)
# gRPC closes abandoned connections within this time.
SETTLE_S = 20


def usage(pid):
    """Returns (MiB resident, descriptors, threads) of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    descriptors = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
    return int(fields["VmRSS"].split()[0]) / 1024, descriptors, int(fields["Threads"])


def sample(daemon, start, clients):
    rss, descriptors, threads = usage(daemon.process.pid)
    metrics = daemon.metrics()

    def total(name):
        return int(sum(value for (metric, _), value in metrics.items() if metric == name))

    return (
        round(time.monotonic() - start, 2),
        round(rss, 2),
        descriptors,
        threads,
        sum(client.calls for client in clients),
        total("sluice_admitted_total"),
        total("sluice_requests_total"),
        total("sluice_requests_waiting"),
        total("sluice_requests_running"),
    )


def soak(daemon, seconds, seed):
    """Returns the samples of the run, its clients after it, and the error of a sample or None."""
    clients = [kind(daemon, seed + i) for i, kind in enumerate(soak_clients.KINDS)]
    start = time.monotonic()
    samples, failure = [sample(daemon, start, clients)], None
    for client in clients:
        client.thread.start()
    tick = threading.Event()  # never set; used for waiting only
    try:
        while (left := start + seconds - time.monotonic()) > 0 and daemon.process.poll() is None:
            if any(client.failure for client in clients):
                break
            tick.wait(min(SAMPLES_EVERY_S, left))
            samples.append(sample(daemon, start, clients))
    except GONE as error:
        failure = error
    finally:
        for client in clients:
            client.stopped.set()
        for client in clients:
            client.thread.join()
    return samples, clients, failure


def trend(samples):
    """Returns ((t0, MiB), (t1, MiB)), the line through memory after the warm-up. It is fitted to
    the minimum of each window, because large messages are temporary and leaks are not.
    """
    settled = [row for row in samples if row[0] >= samples[-1][0] * WARM_UP]
    # The windows have nearly the same size, because the minimum of few samples may be too high.
    windows = np.array_split(np.array(settled)[:, :2], min(WINDOWS, len(settled)))
    least = [min(window, key=lambda row: row[1]) for window in windows]
    if len(least) == 1:
        return (tuple(map(float, least[0])),) * 2
    slope, base = np.polyfit([row[0] for row in least], [row[1] for row in least], 1)
    return tuple((float(t), float(base + slope * t)) for t in (settled[0][0], settled[-1][0]))


def settle(daemon, descriptors):
    """Returns (open descriptors, whether every request has ended) after the clients have left.
    Returns (0, False) if the daemon has ended.
    """
    give_up = time.monotonic() + SETTLE_S
    tick = threading.Event()
    while daemon.process.poll() is None:
        try:
            now = usage(daemon.process.pid)[1], balanced(daemon)
        except GONE:
            break
        if (now[0] <= descriptors and now[1]) or time.monotonic() > give_up:
            return now
        tick.wait(0.2)
    return 0, False


def problems(clients, failure, fit, before, after, even, status):
    if failure:
        yield f"a sample failed: {failure!r}"
    for client in clients:
        if client.failure:
            yield f"{client.thread.name}: {client.failure!r}"
        elif client.calls == 0:
            yield f"{client.thread.name} made no calls"
    (_, first), (_, last) = fit
    if last - first > MOST_GROWTH * first:
        yield f"memory grew from {first:.1f} to {last:.1f} MiB after the warm-up"
    if after > before:
        yield f"{after} descriptors are open; {before} were open before the clients started"
    if not even:
        yield "some admitted requests did not end"
    if status != 0:
        yield f"the daemon ended with status {status}"


def write(out, samples, fit, facts):
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(samples)
    times = [row[0] for row in samples]
    column = {name: [row[i] for row in samples] for i, name in enumerate(COLUMNS)}
    rate = [0, *((b - a) / max(t - s, 0.1) for a, b, s, t in
                 zip(column["calls"], column["calls"][1:], times, times[1:]))]
    charts = [soak_chart.chart("Resident memory, and its trend after the warm-up", "MiB", times,
                               column["rss_mib"], fit),
              soak_chart.chart("Open descriptors", "count", times, column["descriptors"]),
              soak_chart.chart("Threads", "count", times, column["threads"]),
              soak_chart.chart("Turns of the clients", "1/s", times, rate),
              soak_chart.chart("Requests waiting or running", "count", times,
                               [w + r for w, r in zip(column["waiting"], column["running"])])]
    out.with_suffix(".html").write_text(soak_chart.page("Sluice: soak", facts, charts))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "soak")
    arguments = parser.parse_args()

    daemon = Daemon("--server.log.level", "error")  # the log is not read
    before = usage(daemon.process.pid)[1]
    samples, clients, failure = soak(daemon, arguments.seconds, arguments.seed)
    after, even = settle(daemon, before)
    daemon.stop(status=None)
    fit = trend(samples)
    found = list(problems(clients, failure, fit, before, after, even, daemon.process.returncode))
    facts = [
        ("verdict", "failed: " + "; ".join(found) if found else "passed"),
        ("time", f"{samples[-1][0] / 60:.1f} min, seed {arguments.seed}"),
        (
            "memory",
            f"{fit[0][1]:.1f} MiB after {fit[0][0] / 60:.1f} min, {fit[1][1]:.1f} MiB at the end; "
            f"at most {max(row[1] for row in samples):.1f} MiB",
        ),
        (
            "descriptors",
            f"{before} before, at most {max(row[2] for row in samples)}, {after} after",
        ),
        (
            "requests",
            f"{samples[-1][5]} admitted, {samples[-1][6]} ended at the last sample; "
            f"{'none' if even else 'some'} unfinished",
        ),
        *((client.thread.name, f"{client.calls} turns") for client in clients),
    ]
    write(arguments.out, samples, fit, facts)
    for name, value in facts:
        print(f"{name:12} {value}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
