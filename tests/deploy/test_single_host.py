"""Tests the systemd unit with systemd-analyze, and the stop timeouts of the unit and of Docker."""

import re
import subprocess

import pytest

from processes import DEPLOY, SLUICED, tool

UNIT = DEPLOY / "systemd" / "sluiced.service"


@pytest.fixture
def unit(tmp_path):
    """The path of a copy of the unit with the binaries of this build."""
    installed = "/usr/local/bin/sluiced"
    assert installed in UNIT.read_text()
    text = UNIT.read_text().replace(installed, str(SLUICED))
    path = tmp_path / UNIT.name
    path.write_text(text)
    return path


def analyze(*arguments):
    return subprocess.run(
        [tool("systemd-analyze"), *map(str, arguments)], capture_output=True, text=True
    )


def test_the_unit_is_valid(unit):
    result = analyze("verify", unit)
    # systemd-analyze only warns about an unknown directive.
    assert result.returncode == 0 and not result.stderr, result.stderr


def test_a_reload_of_the_unit_sends_the_signal_that_reloads_the_configuration():
    (command,) = re.findall(r"^ExecReload=(.*)$", UNIT.read_text(), re.M)
    assert command == "/bin/kill -HUP $MAINPID"


def test_the_exposure_of_the_unit_is_low(unit):
    """The exposure is at most 1.5 of 10 on systemd's scale; network access and others remain."""
    result = analyze("security", "--offline=true", "--threshold=15", unit)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "file, pattern",
    [
        (UNIT, r"^TimeoutStopSec=(\d+)$"),
        (DEPLOY / "README.md", r"^docker run (?:.*\\\n)+?.*--stop-timeout (\d+) "),
    ],
    ids=["systemd", "docker"],
)
def test_the_stop_timeout_covers_the_default_drain_and_5_s_to_close(file, pattern):
    options = subprocess.run(
        [SLUICED, "--model", "m=/", "--print-config"], capture_output=True, text=True
    )
    times = [float(each) for each in re.findall(r"drain_\w+: ([\d.]+)s?\b", options.stdout)]
    assert len(times) == 2, options.stdout
    assert sum(times) + 5 <= int(re.search(pattern, file.read_text(), re.M)[1])
