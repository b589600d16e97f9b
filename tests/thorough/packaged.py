"""Runs programs of the packages."""

import contextlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import SLUICE, free_port  # noqa: E402
from waiting import PATIENCE_S, wait_until  # noqa: E402


def succeed(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def named_licences(texts):
    """Returns the names of the common licences of Debian that the files `copyright` refer to."""
    return set(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", "".join(texts)))


@contextlib.contextmanager
def daemon(command_of):
    """Runs a daemon, and yields its gRPC address. `command_of` returns the command line for the
    options that it is called with."""
    grpc = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [*map(str, command_of("--server.grpc.address", grpc, "--server.metrics.address", "",
                              "--server.admin.address", "", "--server.lifecycle.drain-delay",
                              "0"))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ready():
        assert process.poll() is None, process.stdout.read()
        return subprocess.run([SLUICE, "health", "--server", grpc],
                              capture_output=True).returncode == 0

    try:
        wait_until(ready)
        yield grpc
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
