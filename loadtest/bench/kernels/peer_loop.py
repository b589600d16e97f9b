"""What the peers of run.py have in common: a job a line on standard input, an answer a line on
output.

A job is a JSON object; the answer is {"seconds": median of a few runs} or {"error": text}. The
first line
of output is {"version": text}. Only the standard library: each peer has an interpreter of its own.
"""

import json
import statistics
import sys
import time

REPETITIONS = 3
SHORT_S = 0.02  # runs that take less are repeated until they do not
LONG_S = 0.5  # runs that take longer are timed once in a round


def median_seconds(run, threads):
    """Of one run; by the thread's own time where it works alone, as the C++ benchmarks do."""
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
    """Answers until the input ends; run_of(job) is what to time."""
    print(json.dumps({"version": version}), flush=True)
    runs = {}
    for line in sys.stdin:
        try:
            if line not in runs:
                runs[line] = run_of(json.loads(line))
                runs[line]()  # to be warm
            answer = {"seconds": median_seconds(runs[line], threads)}
        except Exception as error:  # the peer's own: reported, not ours to judge
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
