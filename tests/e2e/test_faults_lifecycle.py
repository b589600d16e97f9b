"""Tests shutdown under load, full disks, closed log pipes and stopped processes."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import grpc
import pytest
import tritonclient.grpc as grpcclient
from always import await_balance, undisturbed
from calls import Call
from conftest import DEMO, ROOT, SLUICED, Daemon, free_port
from infer import infer, text_inputs
from test_invariance import same
from tritonclient.grpc import service_pb2_grpc
from waiting import PATIENCE_S, pause, wait_until

INPUTS = text_inputs("And it came to pass")


def test_sigterm_waits_for_accepted_requests_but_not_for_hung_calls(daemon, gate):
    held_step = gate("step")
    # The late call arrives within the drain delay. Accepted calls end within the drain timeout.
    server = daemon("--server.lifecycle.drain-delay", "5s",
                    "--server.lifecycle.drain-timeout", "20s",
                    faults=f"before_replay@hold:{held_step}*1")
    with server.client() as client:
        alone = infer(client, INPUTS, max_tokens=100)
    with grpc.insecure_channel(server.grpc) as channel:
        never_ends = threading.Event()

        def open_for_ever():
            never_ends.wait(PATIENCE_S)
            yield from ()

        hung = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(open_for_ever())
        held = Call(server, "hold")
        held_step.await_met()
        accepted = [Call(server, inputs=INPUTS, max_tokens=100) for _ in range(8)]
        wait_until(lambda: server.metric("sluice_requests_waiting") >= len(accepted))
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not server.ready())
        assert server.live()
        assert server.process.poll() is None, "the daemon must report NOT_SERVING before it ends"
        late = Call(server, inputs=INPUTS, max_tokens=100)  # Accepted during the drain delay.
        wait_until(lambda: server.metric("sluice_requests_waiting") > len(accepted))
        held_step.open()
        assert all(same(call.end(), alone) for call in (*accepted, late))
        held.end()
        server.await_end(0)
        never_ends.set()
        assert hung.code() is not grpc.StatusCode.OK


def test_a_hung_device_does_not_delay_the_shutdown(daemon):
    server = daemon("--server.lifecycle.drain-timeout", "500ms", faults="replay@hang:hang")
    call = Call(server, "hang")
    wait_until(lambda: server.metric("sluice_requests_running") > 0)
    server.stop(70)
    assert call.status() == "UNAVAILABLE"


def test_no_call_fails_when_one_of_two_replicas_restarts(daemon):
    ports = [free_port(), free_port()]
    options = ("--server.lifecycle.drain-delay", "3s")
    replicas = [daemon(*options, grpc=f"127.0.0.1:{port}") for port in ports]
    service_config = {"loadBalancingConfig": [{"round_robin": {}}],
                      "healthCheckConfig": {"serviceName": ""}}
    channel_options = [("grpc.service_config", json.dumps(service_config)),
                       ("grpc.initial_reconnect_backoff_ms", 100),
                       ("grpc.max_reconnect_backoff_ms", 200)]
    target = "ipv4:" + ",".join(replica.grpc for replica in replicas)
    stop, failures, calls = threading.Event(), [], [0] * 4
    with grpcclient.InferenceServerClient(target, channel_args=channel_options) as client:
        wanted = infer(client, INPUTS, max_tokens=8)

        def load(index):
            try:
                while not stop.is_set():
                    assert same(infer(client, INPUTS, max_tokens=8), wanted)
                    calls[index] += 1
            except Exception as failure:  # The test's thread reports it.
                failures.append(failure)

        threads = [threading.Thread(target=load, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        wait_until(
            lambda: all(replica.metric("sluice_admitted_total") > 10 for replica in replicas)
        )
        replicas[0].stop()
        replicas[0] = daemon(*options, grpc=replicas[0].grpc)
        wait_until(lambda: replicas[0].metric("sluice_admitted_total") > 10 or failures)
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    for replica in replicas:
        await_balance(replica)


def started(**files):
    """Returns a ready daemon that logs every request to `files`."""
    grpc_address, http_address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [SLUICED, "--model", f"demo={DEMO}", "--server.grpc.address", grpc_address,
         "--server.metrics.address", http_address, "--server.log.access-sample", "1",
         "--server.admin.address=", "--engine.batch.max-batch-tokens=1024"], **files)
    server = Daemon.__new__(Daemon)
    server.grpc, server.http, server.process = grpc_address, http_address, process
    wait_until(server.ready)
    return server


def serves_and_ends(server):
    try:
        with undisturbed(server):
            for _ in range(20):
                assert Call(server).status() == "OK"
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 0


def test_sigterm_ends_the_daemon_during_model_loading():
    http_address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [SLUICED, "--model", f"demo={DEMO}", "--server.grpc.address", "127.0.0.1:0",
         "--server.metrics.address", http_address, "--server.admin.address="],
        env={**os.environ, "SLUICE_TEST_FAULTS": "load:delay=1000"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    server = Daemon.__new__(Daemon)
    server.http, server.process = http_address, process
    wait_until(server.live)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert "ended while it was loading models" in output
    assert " ready: " not in output


def test_an_unwritable_log_does_not_stop_the_daemon():
    with open("/dev/full", "w") as full:
        server = started(stdout=full, stderr=full)
    assert server.metric("sluice_log_dropped_total") > 0
    serves_and_ends(server)


def test_a_log_without_a_reader_does_not_stop_the_daemon():
    reading, writing = os.pipe()
    server = started(stdout=writing, stderr=writing)
    os.close(writing)
    os.close(reading)  # From here on, every write fails with EPIPE.
    serves_and_ends(server)


def test_unwritable_files_are_reported_and_do_not_stop_the_daemon(daemon, tmp_path):
    folder = tmp_path / "removed"
    folder.mkdir()
    server = daemon("--engine.history.journal", "/dev/full",
                    "--engine.ladder.file", str(folder / "ladder"))
    shutil.rmtree(folder)
    with undisturbed(server), server.client() as client:
        for _ in range(20):
            infer(client, INPUTS, max_tokens=20)
    output = server.stop()
    assert "the journal loses lines" in output
    assert re.search(r"ladder file.*/removed/ladder", output), output


@pytest.mark.parametrize("option", ["--server.grpc.address", "--server.metrics.address"])
def test_a_port_in_use_is_named_and_nothing_is_served(demo, option):
    taken = demo.grpc if "grpc" in option else demo.http
    other = "--server.metrics.address" if "grpc" in option else "--server.grpc.address"
    with undisturbed(demo):
        second = subprocess.run([SLUICED, "--model", f"demo={DEMO}", option, taken, other,
                                 "127.0.0.1:0", "--server.admin.address="],
                                capture_output=True, text=True, timeout=PATIENCE_S)
    assert second.returncode == 1
    assert taken in second.stderr
    assert "ready" not in second.stdout


def test_a_stopped_process_expires_late_requests_only(daemon, gate):
    """The process is stopped for longer than the watchdog's limit and some calls' timeouts."""
    held_step = gate("step")
    server = daemon("--engine.watchdog.hang", "6s", faults=f"replay@hold:{held_step}*1")
    with undisturbed(server):
        held = Call(server, "hold")
        held_step.await_met()
        patient = [Call(server, timeout=PATIENCE_S * 1_000_000) for _ in range(3)]
        hasty = [Call(server, timeout=5_000_000) for _ in range(3)]
        wait_until(lambda: server.metric("sluice_requests_waiting") >= 6)
        server.process.send_signal(signal.SIGSTOP)
        pause(7)
        server.process.send_signal(signal.SIGCONT)
        held_step.open()
        assert [call.status() for call in hasty] == ["DEADLINE_EXCEEDED"] * 3
        assert [call.status() for call in (held, *patient)] == ["OK"] * 4
    assert server.ready()


# The files that may read the wall clock, and the reason.
WALL_CLOCK = {
    "server/inference/frontend.cc": "gRPC's deadline of a call, converted to monotonic at once",
    "server/net/grpc_ports.cc": "the deadline of gRPC's shutdown, which takes wall-clock time",
    "server/net/grpc_port.cc": "the same",
    "server/net/grpc_port.h": "the same",
    "server/observe/engine_metrics.cc": "the value of a metric that pickers compare by time",
    "server/observe/metrics.cc": "when a certificate expires",
    "server/observe/metrics.h": "the same",
    "server/security/tls_files.cc": "the same",
    "server/security/tls_files.h": "the same",
    "server/security/tls_identity.cc": "the same",
    "server/security/tls_identity.h": "the same",
    "server/observe/statistics.cc": "the time of the last inference, a field of the protocol",
}


def test_only_listed_files_read_the_wall_clock():
    """A change of the system clock affects no deadline, timeout, wait or cost."""
    reader = re.compile(
        r"\bsystem_clock\b|absl::Now\(|\bCLOCK_REALTIME\b|\bgettimeofday\b|\btime\(nullptr\)"
        r"|\btime\(NULL\)|high_resolution_clock"
    )
    found = {
        str(path.relative_to(ROOT))
        for folder in ("server", "engine", "kernels", "config")
        for path in pathlib.Path(ROOT, folder).rglob("*")
        if path.suffix in (".cc", ".h") and reader.search(path.read_text())
    }
    assert found == set(WALL_CLOCK)
