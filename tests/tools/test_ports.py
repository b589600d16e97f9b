"""Tests tests/support/ports.py, which gives each test process its own ports."""

import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
sys.path.insert(0, str(SUPPORT))

import ports  # noqa: E402


def range_of(port):
    return (port - ports.FIRST) // ports.SIZE


def test_processes_that_run_at_the_same_time_have_different_ranges():
    own = range_of(ports.free_port())
    program = "import ports; print(ports.free_port(), flush=True); input()"
    others = [subprocess.Popen([sys.executable, "-c", program], cwd=SUPPORT, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    ranges = {range_of(int(each.stdout.readline())) for each in others}
    for each in others:
        each.communicate("\n")
        assert each.returncode == 0
    assert len(ranges | {own}) == 4


def test_a_port_in_use_is_skipped_and_no_port_is_given_twice_in_a_row():
    first = ports.free_port()
    with socket.create_server(("127.0.0.1", first + 1)):
        assert ports.free_port() == first + 2
    assert ports.FIRST < first < ports.END


def test_a_command_has_free_ports_in_its_environment_and_its_status_is_returned():
    run = subprocess.run([SUPPORT / "ports.py", "A_PORT", "B_PORT", "--", "sh", "-c",
                          "echo $A_PORT $B_PORT; exit 7"], capture_output=True, text=True)
    assert run.returncode == 7, run.stderr
    a, b = map(int, run.stdout.split())
    assert a != b and range_of(a) == range_of(b) != range_of(ports.free_port())
