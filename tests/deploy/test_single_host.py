"""Tests the systemd units with systemd-analyze, and the stop timeouts of units and Docker."""

import re
import subprocess
import sys

import pytest

from processes import DEPLOY, ROOT, SLUICED, tool

UNIT = DEPLOY / "systemd" / "sluiced.service"
GATEWAY_UNIT = DEPLOY / "systemd" / "sluice-gateway.service"


@pytest.fixture(params=[UNIT, GATEWAY_UNIT], ids=lambda each: each.stem)
def unit(request, tmp_path):
    """The path of a copy of a unit with programs that exist here."""
    programs = {UNIT: ("/usr/local/bin/sluiced", SLUICED),
                GATEWAY_UNIT: ("/opt/sluice/bin/sluice-gateway", sys.executable)}
    installed, here = programs[request.param]
    text = request.param.read_text()
    assert f"\nExecStart={installed} " in text
    # systemd-analyze reports an After= whose unit it cannot find.
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace(programs[UNIT][0], str(SLUICED)))
    path = tmp_path / request.param.name
    path.write_text(text.replace(installed, str(here)))
    return path


def directives(unit):
    """Returns {section: [lines without comments]}."""
    sections = re.split(r"^\[(\w+)\]\n", unit.read_text(), flags=re.M)
    return {name: [line for line in text.splitlines() if line and not line.startswith("#")]
            for name, text in zip(sections[1::2], sections[2::2])}


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


def test_only_the_start_itself_decides_whether_the_daemon_starts():
    """A check before the start would refuse a broken model of model_repository, which the start
    leaves out, and a time limit would end the start of a large model."""
    service = directives(UNIT)["Service"]
    assert not [line for line in service if line.startswith("ExecStartPre=")]
    assert "TimeoutStartSec=infinity" in service


def test_the_units_have_the_same_hardening():
    daemon, gateway = (directives(each)["Service"] for each in (UNIT, GATEWAY_UNIT))
    start = daemon.index("CapabilityBoundingSet=")
    assert daemon[start:] == gateway[gateway.index("CapabilityBoundingSet="):]
    assert "DynamicUser=yes" in daemon[:start] and "DynamicUser=yes" in gateway


def test_the_unit_of_the_gateway_starts_the_program_of_the_wheel():
    unit = directives(GATEWAY_UNIT)
    command, = [line for line in unit["Service"] if line.startswith("ExecStart=")]
    path, options = command.removeprefix("ExecStart=").split(" ")
    project = (ROOT / "clients" / "python" / "pyproject.toml").read_text()
    programs = project.split("[project.scripts]\n")[1].split("\n\n")[0]
    assert re.search(rf"^{path.rsplit('/', 1)[1]} = ", programs, re.M)
    assert options == "$GATEWAY_OPTIONS"
    # The file may be missing, and a restart of the daemon does not restart the gateway.
    assert "EnvironmentFile=-/etc/sluice/gateway.env" in unit["Service"]
    after, = [line.split("=")[1].split() for line in unit["Unit"] if line.startswith("After=")]
    assert UNIT.name in after
    assert not [line for line in unit["Unit"] if line.startswith(("Requires=", "BindsTo="))]
    drain = subprocess.run(
        [sys.executable, "-c", "from sluice_client.gateway import __main__ as gateway\n"
         "print(gateway.arguments().parse_args([]).drain_timeout)"],
        capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "clients" / "python")})
    stop, = [line for line in unit["Service"] if line.startswith("TimeoutStopSec=")]
    assert int(drain.stdout) < int(stop.split("=")[1])


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
