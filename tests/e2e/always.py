"""Checks the invariants that tests/faults.md lists under "always" during every fault."""

import contextlib
import threading

from tritonclient.utils import InferenceServerException

from infer import infer, text_inputs
from test_invariance import same
from waiting import wait_until


def balanced(server):
    """Returns whether each admitted request ended exactly once and none is waiting or running."""
    samples = server.metrics()

    def total(name):
        return sum(value for (sample, _), value in samples.items() if sample == name)

    return (total("sluice_admitted_total") == total("sluice_requests_total")
            and total("sluice_requests_waiting") == 0 and total("sluice_requests_running") == 0
            and total("sluice_queued_tokens") == 0)


def await_balance(server):
    wait_until(lambda: balanced(server), what="requests were lost, or have not ended")


class Bystander:
    """A client that calls `server` in a loop and expects the same bits each time.

    With `reconnects`, it calls again if the daemon closes its connection for lack of memory."""

    def __init__(self, server, model="demo", reconnects=False, **parameters):
        self._server = server
        self._reconnects = reconnects
        self._model = model
        self._parameters = {"max_tokens": 8, **parameters}
        self._stop = threading.Event()
        self.calls = 0
        self.failure = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        inputs = text_inputs("And it came to pass")
        try:
            with self._server.client() as client:
                wanted = infer(client, inputs, model=self._model, **self._parameters)
                while not self._stop.is_set():
                    answer = self._call(client, inputs)
                    if answer is None:
                        continue
                    assert same(answer, wanted), "the answer changed"
                    self.calls += 1
        except Exception as failure:  # The test's thread reports it.
            self.failure = failure

    def _call(self, client, inputs):
        # Normally a call takes milliseconds. A call that takes a minute counts as disturbed.
        try:
            return infer(client, inputs, model=self._model, timeout=60_000_000, **self._parameters)
        except InferenceServerException as error:
            closed = ("RST_STREAM", "Buffers full")  # the call or its connection was closed
            if self._reconnects and any(sign in error.message() for sign in closed):
                return None
            raise

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, failure, *_):
        self._stop.set()
        if failure is not None:  # The thread may be waiting at a closed gate.
            return
        self._thread.join()
        assert self.failure is None, f"another client was disturbed: {self.failure}"
        assert self.calls > 0, "the other client never got an answer"


@contextlib.contextmanager
def undisturbed(server, model="demo", **parameters):
    """Checks that `server` serves another client while the body runs, and recovers after it."""
    with Bystander(server, model, **parameters) as bystander:
        yield bystander
        # Of two more answers, at least one belongs to a call that started after the fault.
        after = bystander.calls + 2
        wait_until(
            lambda: bystander.calls >= after or bystander.failure is not None,
            what="the other client got no answer",
        )
    assert server.process.poll() is None, "the daemon has ended"
    await_balance(server)
