"""Times peers on a GPU, or checks their values on a CPU."""

import json
import os

import torch
from triton.testing import do_bench

DEVICE = os.environ.get("SLUICE_PEERS_DEVICE", "cuda")  # "cpu" checks values only, in small sizes
ON_GPU = DEVICE == "cuda"
ROTATED_BYTES = 256 << 20
MOST_SETS = 16
BATCHES = 15
GROUPS = {}  # functions that time peers with a Report, by name


def group(function):
    """Adds a function to GROUPS."""
    GROUPS[function.__name__] = function
    return function


class Report:
    """Prints measurements as they arrive and collects the failed ones."""

    def __init__(self):
        self.problems = []

    def keep(self, name, shape, peer, **more):
        measurement = {"part": "peers", "name": name, "shape": shape, "peer": peer, "unit": "us"}
        print(json.dumps({"measurement": {**measurement, **more}}), flush=True)

    def fail(self, name, shape, peer, error):
        """Reports a failure, so that the other peers can continue."""
        self.problems.append(f"{name}; {shape}, {peer}: {type(error).__name__}: {str(error)[:200]}")
        torch._dynamo.reset()

    def count(self, name, shape, peer, kernels):
        """Keeps the number of kernels that `kernels` returns."""
        try:
            self.keep(name, shape, peer, value=kernels(), unit="kernels")
        except Exception as error:
            self.fail(name, shape, peer, error)

    def time(self, name, shape, peer, make, tolerance=1e-2, **more):
        """Times a peer. `make` draws inputs and returns two functions: one runs the peer on them,
        the other returns the expected result in float64, or None to skip the comparison.
        """
        try:
            self._time(name, shape, peer, make, tolerance, more)
        except Exception as error:
            self.fail(name, shape, peer, error)
        if ON_GPU:
            torch.cuda.empty_cache()

    def _time(self, name, shape, peer, make, tolerance, more):
        before = torch.cuda.memory_allocated() if ON_GPU else 0
        run, expected = make()
        out, wanted = run(), expected()
        if wanted is not None:  # It may cover only the first sequences.
            out = out[:len(wanted)]
            error = ((out.double() - wanted).norm() / wanted.norm()).item()
            if not error <= tolerance:
                self.problems.append(f"{name}; {shape}, {peer}: relative error {error:.3g}")
                return
        del out, wanted, expected
        if not ON_GPU:
            self.keep(name, shape, peer, value=1.0)
            return
        runs = [run]
        taken = torch.cuda.memory_allocated() - before
        while len(runs) < MOST_SETS and len(runs) * taken < ROTATED_BYTES:
            runs.append(make()[0])
        value, low, high = times_of(runs)
        self.keep(name, shape, peer, value=value, low=low, high=high, sets=len(runs), **more)


def times_of(runs):
    """Returns the median and the quartiles of one run in microseconds."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for run in runs:
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for run in runs:
                run()
    except RuntimeError:  # It cannot be captured, for example because it waits for the device.
        torch.cuda.synchronize()
        low, value, high = do_bench(runs[0], warmup=10, rep=50, quantiles=[0.25, 0.5, 0.75])
        return 1e3 * value, 1e3 * low, 1e3 * high

    def batch(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / (replays * len(runs))

    replays = max(1, min(100, int(5e3 / (batch(1) * len(runs)))))  # about 5 ms per batch
    times = sorted(batch(replays) for _ in range(BATCHES))
    return times[BATCHES // 2], times[BATCHES // 4], times[-1 - BATCHES // 4]


def random(*shape, dtype=torch.bfloat16):
    return torch.rand(*shape, device=DEVICE, dtype=torch.float32).mul_(2).sub_(1).to(dtype)


def of(full, small):
    """Returns the size of a case: small if only values are checked."""
    return full if ON_GPU else small
