"""Tests faults of the machine: steps of the wall clock."""

import datetime
import re
import struct

from always import undisturbed
from failing_files import preload
from http2 import END_STREAM, INFER, STREAM_INFER, Connection, message
from infer import infer, text_inputs
from limits import request

DAY_S = 24 * 3600


class WallClock:
    """The wall clock of a daemon, which a test may step (tests/support/stepped_clock.cc)."""

    def __init__(self, path):
        self._path = path
        self.step(0)
        self.variables = {**preload("stepped_clock"), "SLUICE_CLOCK_STEP": str(path)}

    def step(self, seconds):
        """The daemon's clock differs from the machine's by `seconds` from now on."""
        mode = "r+b" if self._path.exists() else "wb"
        with self._path.open(mode) as file:
            file.write(struct.pack("<q", int(seconds * 1e9)))


def days_of(log):
    """Returns the days of the log's lines, as a number of days after today."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    dates = re.findall(r"\b(\d{4}-\d\d-\d\d)[T ]\d\d:", log)
    return {(datetime.date.fromisoformat(each) - today).days for each in dates}


def test_steps_of_the_wall_clock_end_no_call_and_no_stream(daemon, tmp_path):
    clock = WallClock(tmp_path / "clock")
    with (tmp_path / "log").open("w") as log:
        server = daemon("--server.log.access-sample", "1", variables=clock.variables, log=log)
        with (undisturbed(server), server.client() as client, Connection(server.grpc) as stream,
              Connection(server.grpc) as waiting):
            stream.open(1, STREAM_INFER)
            stream.send(1, message(request(max_tokens=1)))
            assert not stream.wait(lambda: stream.data.get(1)), "the peer hung up"
            for i, days in enumerate((10, -10, 0.01, 0)):
                waiting.open(2 * i + 1, INFER)  # Its message arrives after the step.
                clock.step(days * DAY_S)
                for _ in range(3):
                    infer(client, text_inputs("a"), max_tokens=2, timeout=30_000_000)
                waiting.send(2 * i + 1, message(request(max_tokens=1)), END_STREAM)
                assert waiting.end(2 * i + 1)["grpc-status"] == "0"
                before = len(stream.data[1])
                stream.send(1, message(request(max_tokens=1)))
                assert not stream.wait(lambda seen=before: len(stream.data[1]) > seen)
            assert 1 not in stream.resets and "grpc-status" not in stream.headers[1]
        assert server.ready()
        clock.step(30 * DAY_S)
        server.stop()
    log = (tmp_path / "log").read_text()
    # The library works: the log has the days of the steps, give or take one for the time zone.
    assert any(8 <= each <= 11 for each in days_of(log)), days_of(log)
    assert any(-11 <= each <= -8 for each in days_of(log)), days_of(log)
