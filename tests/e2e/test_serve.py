"""Tests `sluice serve`, which starts a daemon and a gateway together."""

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from authority import Authority
from certificates import Files
from conftest import DEMO, ROOT, SLUICE, SLUICED, free_port
from waiting import PATIENCE_S, wait_until

PORTS = ("--grpc-port", "--http-port", "--metrics-port", "--admin-port")


@pytest.fixture
def programs(tmp_path):
    """A folder with the programs, as in an installation: sluice-serve is a script there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sluiced").symlink_to(SLUICED)
    script = folder / "sluice-serve"
    script.write_text(
        f"#!{sys.executable}\nimport sluice_client.serve\nsluice_client.serve.main()\n")
    script.chmod(0o755)
    return folder


class Serve:
    """A run of `sluice serve` on free ports."""

    def __init__(self, programs, state, *arguments, **options):
        self.ports = {each: free_port() for each in PORTS}
        words = [str(word) for each in self.ports.items() for word in each]
        self.process = subprocess.Popen(
            [SLUICE, "serve", *map(str, arguments[:1]), "--state", str(state), *words,
             *map(str, arguments[1:])],
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", **options},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def lines(self):
        """Returns the seven lines that the program prints once both answer."""
        found = [self.process.stdout.readline().strip() for _ in range(7)]
        assert found[-1].startswith("stop with Ctrl-C"), (found, self.process.stderr.read())
        return found

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return [int(each) for each in file.read().split()]


def ended(pid):
    return not os.path.exists(f"/proc/{pid}")


def complete(address, model):
    request = urllib.request.Request(
        f"{address}/v1/completions", headers={"Content-Type": "application/json"},
        data=json.dumps({"model": model, "prompt": "In the", "max_tokens": 4}).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
        return json.loads(reply.read())["choices"][0]["text"]


def embed(address, text):
    """Returns the status, and the message of an error, of a request that names no model."""
    request = urllib.request.Request(f"{address}/embed", json.dumps({"inputs": text}).encode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


def test_serves_the_demo_model_and_ends_both(programs, tmp_path):
    with Serve(programs, tmp_path / "state") as served:
        grpc, http, status, admin, models, check, _ = served.lines()
        assert models == "models: demo"
        assert check == (f"check:  sluice doctor --server {grpc.split()[1]} --metrics-address"
                         f" {status.split('/')[2]} --admin {admin.split()[1]}")
        doctor = subprocess.run([SLUICE, *check.split()[2:]], capture_output=True, text=True)
        assert doctor.returncode == 0 and "0 bad, 0 to consider" in doctor.stdout, doctor.stdout
        assert complete(http.split()[1], "demo")
        health = subprocess.run([SLUICE, "health", "--server", grpc.split()[1]])
        assert health.returncode == 0
        children = served.children()
        assert len(children) == 2
        assert served.stop() == (0, "")
        assert all(map(ended, children))
    ladders = [each.name for each in (tmp_path / "state").glob("ladder-*")]
    assert len(ladders) == 1, "the ladder is kept for the next start"


def test_serves_each_model_of_a_folder(programs, tmp_path):
    for name in ("first", "second"):
        shutil.copytree(DEMO, tmp_path / "models" / name,
                        ignore=shutil.ignore_patterns("training", "*.py"))
    # No template, and a proxy that must not get the calls of this host.
    (tmp_path / "models" / "second" / "tokenizer_config.json").write_text('{"chat_template": null}')
    proxy = f"http://127.0.0.1:{free_port()}"
    with Serve(programs, tmp_path / "state", tmp_path / "models", http_proxy=proxy,
               no_proxy="example.org") as served:
        _, http, _, _, models, _, _ = served.lines()
        assert models == "models: first, second"
        assert complete(http.split()[1], "second")
        assert served.stop(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize("index, name", [(0, "the daemon"), (1, "the gateway")])
def test_ends_the_other_if_one_ends(programs, tmp_path, index, name):
    with Serve(programs, tmp_path / "state") as served:
        served.lines()
        children = served.children()
        os.kill(children[index], signal.SIGKILL)
        _, errors = served.process.communicate(timeout=PATIENCE_S)
        assert served.process.returncode == 1 and f"{name} ended with status -9" in errors
        assert all(map(ended, children))


def test_arguments_after_two_dashes_go_to_the_daemon(programs, tmp_path):
    with Serve(programs, tmp_path / "state", ROOT / "models" / "demo", "--", "--no-such-option",
               "1") as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 1
    assert "unknown argument" in errors and "no-such-option" in errors
    assert "no model can be served" not in errors


def test_a_problem_of_all_folders_is_reported_once(programs, tmp_path):
    for name in ("first", "second"):
        shutil.copytree(DEMO, tmp_path / "models" / name,
                        ignore=shutil.ignore_patterns("training", "*.py"))
    with Serve(programs, tmp_path / "state", tmp_path / "models", "--", "--no-such-option",
               "1") as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert errors.count("no-such-option") == 1, errors


def test_the_gateway_may_have_a_certificate(programs, tmp_path):
    files = Files(tmp_path, Authority())
    with Serve(programs, tmp_path / "state", DEMO, "--gateway", "--certificate", files.crt, "--key",
               files.key) as served:
        url = served.lines()[1].split()[1]
        trusted = ssl.create_default_context(cafile=files.ca)
        trusted.check_hostname = False
        with urllib.request.urlopen(f"{url}/livez", timeout=PATIENCE_S, context=trusted) as answer:
            assert url.startswith("https://") and answer.status == 200
        status, errors = served.stop()
        assert status == 0 and "handshake" not in errors


def test_arguments_after_gateway_go_to_the_gateway(programs, tmp_path):
    for name in ("first", "second"):
        shutil.copytree(DEMO, tmp_path / "models" / name,
                        ignore=shutil.ignore_patterns("training", "*.py"))
    with Serve(programs, tmp_path / "state", tmp_path / "models", "--gateway", "--default-model",
               "second", "--max-body-bytes", 2000, "--", "--engine.queue.max-wait", "5s") as served:
        http = served.lines()[1].split()[1]
        assert embed(http, "a")[0] == 200
        status, error = embed(http, "a" * 3000)
        assert status == 413 and "2000 bytes" in error
        assert served.stop()[0] == 0  # The refusal is logged.


@pytest.mark.parametrize("words, problem", [
    (["--gateway", "--no-such-option"], "unrecognized arguments: --no-such-option"),
    (["--no-such-option"], "unrecognized arguments: --no-such-option"),
    (["--server.grpc.address", "localhost:1"], "put options of the daemon after --"),
    (["--alias", "a=b"], "unrecognized arguments: --alias a=b; put options of the gateway after"),
    (["--gateway", "--chat", "demo=no.jinja"], "there is no such file or folder"),
    (["--gateway", "--alias", "a b=demo"], "is not a name"),
    (["--gateway", "--listen", "localhost:1"], "use --host and --http-port before --gateway"),
    (["--", "--device", "cpu", "--gateway", "--daemon", "a:1"], "use --host and --grpc-port"),
    (["--gateway", "--daemon-connections", "0"], "--daemon-connections: 0 is less than 1"),
    (["--gateway", "--default-max-tokens", "-1"], "--default-max-tokens: -1 is less than 0"),
    (["--gateway", "--timeout", "0"], "--timeout: 0 is not a positive time in seconds"),
    (["--gateway", "--max-timeout", "inf"], "--max-timeout: inf is not a positive time"),
])
def test_wrong_options_of_the_gateway_are_refused_at_once(programs, tmp_path, words, problem):
    with Serve(programs, tmp_path / "state", DEMO, *words) as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode != 0 and problem in errors, errors


def test_folders_that_cannot_be_served_are_named_and_skipped(programs, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(DEMO, models / "good", ignore=shutil.ignore_patterns("training", "*.py"))
    for name in ("broken", "gliner", "notes", "two words"):
        (models / name).mkdir()
    (models / "broken" / "config.json").write_text("{")
    (models / "gliner" / "gliner_config.json").write_text("{}")
    (models / "two words" / "config.json").write_text("{}")
    with Serve(programs, tmp_path / "state", models) as served:
        assert served.lines()[4] == "models: good"
        status, errors = served.stop()
    lines = errors.splitlines()
    assert status == 0 and len(lines) == 4, errors
    for line, name, why in zip(lines, ("broken", "gliner", "notes", "two words"), (
            "config.json", "run python tools/convert", "it has no config.json", "rename it")):
        assert f"skips {models / name}: " in line and why in line, line
    shutil.rmtree(models / "good")
    with Serve(programs, tmp_path / "state", models) as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 1 and len(errors.splitlines()) == 5, errors


@pytest.mark.parametrize("first, second", list(itertools.combinations(PORTS, 2)))
def test_one_port_for_two_options_is_refused(programs, tmp_path, first, second):
    port = free_port()
    with Serve(programs, tmp_path / "state", DEMO, first, port, second, port) as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 1
    assert first in errors and second in errors and f"are both {port}. Use another" in errors


@pytest.mark.parametrize("options", [*itertools.combinations(PORTS, 1), PORTS[:3:2], PORTS])
def test_one_message_names_all_taken_ports_and_a_command_with_free_ones(programs, tmp_path,
                                                                        options):
    with contextlib.ExitStack() as stack:
        taken = {}
        for option in options:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            taken[option] = listener.getsockname()[1]
        words = [word for each in taken.items() for word in each]
        with Serve(programs, tmp_path / "state", DEMO, *words, "--", "--device", "cpu") as served:
            _, errors = served.process.communicate(timeout=PATIENCE_S)
        assert served.process.returncode == 1
        for option, port in taken.items():
            assert f"{port} ({option})" in errors, errors
        command = shlex.split(errors.splitlines()[-1])
    assert command[:3] == ["sluice", "serve", str(DEMO)]
    assert command[-3:] == ["--", "--device", "cpu"]
    given = dict(zip(command[3:-3:2], command[4:-3:2]))
    assert given["--state"] == str(tmp_path / "state")
    for option in PORTS:
        port = int(given[option])
        assert port == served.ports[option] if option not in taken else port != taken[option]


def test_a_second_run_at_the_addresses_of_the_first_names_the_way_to_add_models(programs,
                                                                                tmp_path):
    repository = tmp_path / "more"
    repository.mkdir()
    with Serve(programs, tmp_path / "state", DEMO, "--", "--model-repository", repository) as first:
        admin = first.lines()[3].split()[1]
        words = [word for each in first.ports.items() for word in each]
        with Serve(programs, tmp_path / "state", DEMO, *words) as second:
            _, errors = second.process.communicate(timeout=PATIENCE_S)
        assert second.process.returncode == 1
        assert "start it with sluice serve DIR -- --model-repository FOLDER" in errors, errors
        assert f"sluice load NAME --admin {admin}. Use free ones" in errors, errors
        shutil.copytree(DEMO, repository / "new", ignore=shutil.ignore_patterns("training", "*.py"))
        subprocess.run([SLUICE, "load", "new", "--admin", admin], check=True)
        assert first.stop() == (0, "")


def test_a_state_folder_that_cannot_be_written_names_the_remedy(programs, tmp_path):
    with Serve(programs, "/proc/sluice") as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 1
    assert "cannot write to /proc/sluice" in errors and "sluice serve --state FOLDER" in errors


@pytest.mark.parametrize("make, problem", [
    (lambda folder: folder / "absent", "cannot read"),
    (lambda folder: folder, "has no config.json and no folder with one"),
])
def test_a_folder_without_models_names_the_remedy(programs, tmp_path, make, problem):
    empty = tmp_path / "empty"
    empty.mkdir()
    with Serve(programs, tmp_path / "state", make(empty)) as served:
        _, errors = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 1 and problem in errors and "model" in errors, errors


def test_without_the_program_the_client_says_how_to_get_it(tmp_path):
    alone = shutil.copy(SLUICE, tmp_path)
    run = subprocess.run([alone, "serve"], env={"PATH": str(tmp_path)}, capture_output=True,
                         text=True)
    assert run.returncode == 2 and "pip install './clients/python[gateway]'" in run.stderr


def test_ctrl_c_while_a_model_is_checked_ends_without_a_traceback(programs, tmp_path):
    (programs / "sluiced").unlink()
    (programs / "sluiced").write_text(f"#!/bin/sh\n: > {tmp_path}/started\nexec sleep 1000\n")
    (programs / "sluiced").chmod(0o755)
    with Serve(programs, tmp_path / "state", DEMO) as served:
        wait_until((tmp_path / "started").exists)
        assert served.stop() == (130, "")


def test_help_lists_the_command_and_its_own_help_lists_its_options(programs):
    def printed(*words):
        return subprocess.run([SLUICE, *words], capture_output=True, text=True, check=True,
                              env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}).stdout

    assert re.search(r"^  serve ", printed("--help"), re.M)
    own = printed("serve", "--help")
    assert own.startswith("usage: sluice serve") and all(each in own for each in PORTS)


def test_a_signal_before_both_answer_ends_the_daemon(programs, tmp_path):
    with Serve(programs, tmp_path / "state") as served:
        wait_until(lambda: served.children())
        children = served.children()
        status, errors = served.stop(signal.SIGTERM)
        assert (status, errors) == (0, "")
        assert all(map(ended, children))
