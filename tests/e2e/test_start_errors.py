"""Tests that errors at the start name the option, the problem and a remedy."""

import socket
import subprocess
import sys

import pytest
from conftest import DEMO, SLUICED, free_port

TAKEN = "choose another port, or end the process that uses this one"


@pytest.fixture(scope="module")
def taken():
    """The address of a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def error_of(*command):
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                           timeout=60)
    assert ended.returncode in (1, 2), ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


def daemon_error(options):
    free = {name: f"127.0.0.1:{free_port()}" for name in
            ("server.grpc.address", "server.metrics.address", "server.admin.address")}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (free | options).items()]
    return error_of(SLUICED, "--model", f"demo={DEMO}", *flags)


@pytest.mark.parametrize("option", ["server.grpc.address", "server.metrics.address",
                                    "server.admin.address", "server.grpc.health_address"])
def test_taken_port_of_the_daemon_is_reported_with_its_option(taken, option):
    error = daemon_error({option: taken})
    assert f"sluiced: {option}: cannot listen on {taken}: Address already in use; {TAKEN}" in error


@pytest.mark.parametrize("option, value, words", [
    ("server.grpc.address", "192.0.2.1:8001", "choose an address of this machine"),
    ("server.metrics.address", "no-such-host.invalid:1", "choose an address of this machine"),
    ("server.auth.callers_file", "/nonexistent/callers", "cannot read /nonexistent/callers"),
    ("cpu.profile", "cpu-none", "known are auto, f32, bf16"),
    ("device", "cuda:0", "set device: cpu"),
])
def test_unusable_value_of_the_daemon_is_reported_with_its_option(option, value, words):
    error = daemon_error({option: value})
    assert f"sluiced: {option}: " in error and words in error


@pytest.mark.parametrize("option, value, words", [
    ("--listen", "TAKEN", TAKEN),
    ("--metrics", "TAKEN", "choose another address"),
    ("--listen", "nowhere", "expected an address HOST:PORT"),
    ("--certificate", "/nonexistent/pem", "expected files in PEM"),
    ("--daemon", "http://127.0.0.1:1", "without http://"),
    ("--daemon-ca", "/nonexistent/ca", "No such file"),
])
def test_unusable_value_of_the_gateway_is_reported_with_its_option(taken, option, value, words):
    given = {"--daemon": f"127.0.0.1:{free_port()}", "--listen": f"127.0.0.1:{free_port()}"}
    given[option] = value.replace("TAKEN", taken)
    error = error_of(sys.executable, "-m", "sluice_client.gateway",
                     *(word for pair in given.items() for word in pair))
    assert option in error.splitlines()[-1] and words in error.splitlines()[-1], error
