"""The protocol between run.py and its peers: a peer reads one job per line on standard input and
writes one answer per line on standard output.

A job is a JSON object; the answer is {"seconds": median of a few runs} or {"error": text}. The
first line of output is {"version": text}. This module uses only the standard library, because each
peer has its own interpreter.
"""

import json
import statistics
import sys
import time

REPETITIONS = 3
SHORT_S = 0.02  # shorter runs are repeated until they take this long
LONG_S = 0.5  # longer runs are timed once in a round


def median_seconds(run, threads):
    """Returns the seconds of one run. With one thread this is its CPU time, as in the C++
    benchmarks; otherwise it is wall time."""
    clock = time.thread_time if threads == 1 else time.perf_counter

    def timed(calls):
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls

    first = timed(1)
    if first > LONG_S:
        return first
    calls = max(1, round(SHORT_S / max(first, 1e-6)))
    return statistics.median(timed(calls) for _ in range(REPETITIONS))


def serve(version, threads, run_of):
    """Answers jobs until the input ends. run_of(job) returns the function to time."""
    print(json.dumps({"version": version}), flush=True)
    runs = {}
    for line in sys.stdin:
        try:
            if line not in runs:
                runs[line] = run_of(json.loads(line))
                runs[line]()  # warms the caches
            answer = {"seconds": median_seconds(runs[line], threads)}
        except Exception as error:  # an error of the peer, which is reported in the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
