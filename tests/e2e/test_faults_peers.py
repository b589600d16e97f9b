"""Tests that one peer that fills a limit is the only one that loses by it: entries 37 to 39 of
tests/faults.md. The peer floods from 127.0.0.1; the other client has the address 127.0.0.2."""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import threading

import pytest
from conftest import DEMO, SANITIZED, SLOWER, SLUICED, free_port
from http2 import END_STREAM, INFER, STREAM_INFER, Connection, message
from limits import MIB, grown, request, resident_before
from test_faults_connections import flood
from waiting import PATIENCE_S, pause, wait_until

HEALTH_CHECK = "/grpc.health.v1.Health/Check"
BUCKETS = "/sluice.admin.v1.Admin/GetBuckets"
OTHER = "127.0.0.2"
MAX_CALLS = 64


@pytest.fixture
def small(daemon):
    return daemon("--server.grpc.max-calls", str(MAX_CALLS))


def calls_from_elsewhere_are_served(server):
    for address, path, body in [(server.grpc, INFER, request(max_tokens=1)),
                                (server.grpc, HEALTH_CHECK, b""),
                                (server.admin, BUCKETS, b""),
                                (server.admin, HEALTH_CHECK, b"")]:
        with Connection(address, source=OTHER) as other:
            ended = other.call(1, path, body)
            assert ended["grpc-status"] == "0", (path, ended)


def displaced(server, wait):
    return server.metric("sluice_calls_displaced_total", listener="grpc", wait=wait)


def line_of(output, text):
    lines = [line for line in output.splitlines() if text in line]
    assert lines, output
    return lines[0]


@pytest.mark.parametrize("path, full, line", [
    (INFER, "sluice_calls_displaced_total", "too many calls wait"),
    (HEALTH_CHECK, "sluice_calls_refused_total", "refused a call: its address has too many"),
], ids=["inference", "health checks"])
def test_half_open_calls_of_one_peer_cost_only_this_peer(small, path, full, line):
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            greedy = stack.enter_context(Connection(small.grpc))
            for i in range(MAX_CALLS + 40):
                greedy.open(2 * i + 1, path)
        wait_until(lambda: small.metric(full, listener="grpc") > 0)
        calls_from_elsewhere_are_served(small)
    assert "peer=ipv4:127.0.0.1 " in line_of(small.stop(), line)


def test_idle_streams_of_one_peer_end_no_stream_of_another(small):
    body = message(request(max_tokens=1))
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(Connection(small.grpc, source=OTHER))
        other.open(1, STREAM_INFER)
        other.send(1, body)
        assert not other.wait(lambda: other.data.get(1)), "the peer hung up"
        for _ in range(2):
            greedy = stack.enter_context(Connection(small.grpc))
            for i in range(MAX_CALLS + 8):
                greedy.open(2 * i + 1, STREAM_INFER)
        wait_until(lambda: displaced(small, "idle_stream") > 0)
        before = len(other.data[1])
        other.send(1, body, END_STREAM)
        assert other.end(1)["grpc-status"] == "0"
        assert len(other.data[1]) > before
    output = small.stop()
    assert "peer=ipv4:127.0.0.1 " in line_of(output, "too many streams are idle")


def test_one_peer_is_served_up_to_the_documented_number_of_waiting_calls(small):
    with Connection(small.grpc) as honest:
        for i in range(MAX_CALLS):
            honest.open(2 * i + 1, INFER)
        for i in range(MAX_CALLS):
            honest.send(2 * i + 1, message(request(max_tokens=1)), END_STREAM)
        for i in range(MAX_CALLS):
            assert honest.end(2 * i + 1)["grpc-status"] == "0"
    assert displaced(small, "message") == 0


def test_rapid_resets_on_many_connections_take_limited_memory(daemon):
    limit = (3072 if SANITIZED else 768) * MIB
    server = daemon("--server.memory.limit-bytes", str(limit))
    before = resident_before(server)

    def reset_streams():
        with contextlib.suppress(OSError), Connection(server.grpc) as flooding:
            flood(flooding, 16_000 // SLOWER, reset=True)

    threads = [threading.Thread(target=reset_streams) for _ in range(12)]
    for thread in threads:
        thread.start()
    calls_from_elsewhere_are_served(server)
    for thread in threads:
        thread.join()
    calls_from_elsewhere_are_served(server)
    # Without limits, all 192,000 calls exist at once on a slow machine and take 1200 MiB. The plan
    # has 48 MiB for calls. What gRPC had read when the connections were closed, and freed memory,
    # depend on the machine: 200 to 600 MiB were seen.
    assert before + grown(server, before) < limit


def test_a_blocked_log_does_not_delay_the_end():
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [SLUICED, "--model", f"demo={DEMO}", "--server.grpc.address", address,
         "--server.metrics.address", f"127.0.0.1:{free_port()}", "--server.admin.address=",
         "--server.log.access-sample", "1"], stdout=writing, stderr=writing)
    os.close(writing)
    wait_until(lambda: answers(address))
    for _ in range(40):  # more lines than the pipe holds
        assert answers(address)
    process.send_signal(signal.SIGTERM)
    # The drain has nothing to wait for. LongestEnd would end the process with status 70.
    assert process.wait(PATIENCE_S) == 0
    os.close(reading)


def answers(address):
    try:
        with Connection(address) as connection:
            return connection.call(1, INFER, request(max_tokens=1)).get("grpc-status") == "0"
    except (OSError, AssertionError):
        pause(0.02)
        return False


def test_closed_standard_descriptors_are_not_reused():
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", SLUICED, "--model", f"demo={DEMO}",
         "--server.grpc.address", address, "--server.metrics.address",
         f"127.0.0.1:{free_port()}", "--server.admin.address="])
    try:
        wait_until(lambda: answers(address))
        opened = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)]
        assert opened == ["/dev/null"] * 3
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("option", ["--config", "--engine.ladder.file"])
def test_a_pipe_in_place_of_a_file_is_refused_at_start(tmp_path, option):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended = subprocess.run(
        [SLUICED, "--model", f"demo={DEMO}", option, pipe, "--server.grpc.address", "127.0.0.1:0",
         "--server.metrics.address", "127.0.0.1:0", "--server.admin.address="],
        capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode != 0
    assert re.search(rf"{re.escape(str(pipe))}.* is not a regular file", ended.stderr)
    assert pipe.is_fifo()


def test_a_callers_file_that_everybody_may_change_is_reported(daemon, tmp_path):
    callers = tmp_path / "callers"
    callers.write_text("alice: token:alice-0123456789\n")
    callers.chmod(0o666)
    server = daemon("--server.auth.callers-file", str(callers))
    output = server.stop()
    assert str(callers) in line_of(output, "every user of this host may change the callers file")
