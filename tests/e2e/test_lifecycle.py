"""Tests how the daemon starts, stops and refuses to start."""

import concurrent.futures
import json
import math
import re
import signal
import socket
import subprocess

import pytest
from authority import Authority
from certificates import Files
from conftest import DEMO, SLUICED
from infer import infer, text_inputs
from tiny_model import D, TinyModel
from waiting import PATIENCE_S, wait_until


def run(*arguments):
    return subprocess.run([SLUICED, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def test_after_sigterm_accepted_requests_finish_and_the_exit_status_is_0(daemon):
    server = daemon()
    with concurrent.futures.ThreadPoolExecutor(8) as pool, server.client() as client:
        before = server.metric("sluice_admitted_total")
        calls = [pool.submit(infer, client, text_inputs("And "), max_tokens=150) for _ in range(8)]
        wait_until(lambda: server.metric("sluice_admitted_total") >= before + 8)
        server.stop()
        for call in calls:
            assert call.result(PATIENCE_S)["sequence_length"][0, 0] > 0


def test_ports_are_free_once_the_daemon_reports_that_it_has_drained(daemon):
    server = daemon()
    assert server.live()
    server.metrics()
    server.process.send_signal(signal.SIGTERM)
    for line in server.process.stdout:
        if "drained" in line:
            break
    for address in (server.grpc, server.http):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address.rsplit(":", 1), timeout=PATIENCE_S)
    assert server.process.stdout.read().splitlines()[-1].endswith(" info exits")
    assert server.process.wait(PATIENCE_S) == 0


def test_a_json_log_has_the_start_and_a_failed_start_as_records(daemon, demo):
    output = daemon("--server.log.format", "json").stop()
    records = [json.loads(line) for line in output.splitlines()]
    ready = [each for each in records if each["message"] == "ready"]
    assert len(ready) == 1 and ready[0]["grpc_port"] > 0 and ready[0]["http_port"] > 0
    failed = run("--model", f"demo={DEMO}", "--server.grpc.address", demo.grpc,
                 "--server.metrics.address=", "--server.admin.address=", "--server.log.format",
                 "json")
    assert failed.returncode == 1 and failed.stdout == ""
    last = [json.loads(line) for line in failed.stderr.splitlines()][-1]
    assert last["level"] == "error" and demo.grpc in last["reason"]


@pytest.mark.parametrize("second, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_the_process_before_the_drain_does(daemon, second, status):
    server = daemon("--server.lifecycle.drain-delay", "1h")
    server.process.send_signal(signal.SIGTERM)
    for line in server.process.stdout:
        if "draining" in line:
            break
    server.process.send_signal(second)
    server.await_end(status)


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_the_service_manager_hears_of_the_start_and_the_stop(daemon, tmp_path, abstract):
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        manager.settimeout(PATIENCE_S)
        server = daemon(variables={"NOTIFY_SOCKET": "@" + name if abstract else name})
        assert manager.recv(64) == b"READY=1"
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(64)
        server.process.send_signal(signal.SIGTERM)
        manager.settimeout(PATIENCE_S)
        assert manager.recv(64) == b"STOPPING=1"
        server.await_end(0)


def test_injected_faults_are_logged_and_off_by_default(daemon):
    words = "TEST FAULTS ARE ON"
    output = daemon(faults="before_replay@absent:delay=1").stop()
    assert words in output
    output = daemon().stop()
    assert words not in output


def test_a_taken_port_is_a_clear_error(demo):
    second = run("--model", f"demo={DEMO}", "--server.grpc.address", demo.grpc,
                 "--server.metrics.address", "127.0.0.1:0", "--server.admin.address=")
    assert second.returncode != 0
    assert demo.grpc in second.stdout + second.stderr


def test_a_missing_gpu_is_a_clear_error():
    ended = subprocess.run([SLUICED, "--model", f"demo={DEMO}", "--device", "cuda:1000"],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert "device: cuda:1000 is configured, but " in ended.stderr
    assert "ready" not in ended.stdout


@pytest.mark.parametrize("yaml, message", [
    ("models:\n  - name: demo\n    path: nowhere\n", "nowhere"),
    ("engine:\n  batch:\n    max_batch_tokenz: 5\n", ":3:"),
    ("engine:\n  batch:\n    max_batch_sequences: many\n", ":3:"),
    ("engine:\n  batch:\n    max_batch_sequences: 65537\n", "max_batch_sequences"),
    ("engine: [\n", "sluice.yaml"),
])
def test_check_reports_the_mistake(tmp_path, yaml, message):
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml)
    checked = run("--config", path, "--check")
    assert checked.returncode != 0
    assert message in checked.stdout + checked.stderr


def test_check_accepts_a_good_file(tmp_path):
    path = tmp_path / "sluice.yaml"
    path.write_text(f"models:\n  - name: demo\n    path: {DEMO}\n")
    checked = run("--config", path, "--check")
    assert checked.returncode == 0
    assert re.search(r"^An estimate leaves [\d.]+ MiB for activations, KV pages and plans\. Only"
                     r" the start measures them", checked.stdout, re.M), checked.stdout


def without_ports(*options):
    return ("--model", f"demo={DEMO}", "--server.grpc.address=127.0.0.1:0",
            "--server.metrics.address=", "--server.admin.address=", *options)


def cut_certificate(tmp_path):
    files = Files(tmp_path, Authority())
    files.crt.write_bytes(files.crt.read_bytes()[:100])
    return files.options()


def written(tmp_path, text):
    path = tmp_path / "callers"
    path.write_text(text)
    return path


@pytest.mark.parametrize("options", [
    lambda tmp_path: ["--server.auth.callers-file", tmp_path / "absent"],
    lambda tmp_path: ["--server.auth.callers-file", written(tmp_path, "no caller")],
    lambda tmp_path: ["--server.tls.certificate-file", tmp_path / "absent",
                      "--server.tls.key-file", tmp_path / "absent"],
    cut_certificate,
    lambda tmp_path: ["--cpu.profile", "nosuch"],
    lambda tmp_path: ["--device", "cuda:1000"],
    lambda tmp_path: ["--engine.history.journal", tmp_path / "absent" / "journal"],
    lambda tmp_path: ["--engine.history.journal", tmp_path],
    lambda tmp_path: ["--engine.ladder.file", tmp_path],
    lambda tmp_path: ["--engine.ladder.file", tmp_path / "absent" / "ladder"],
    lambda tmp_path: ["--engine.ladder.strategy", "fixed", "--engine.ladder.fixed-tokens",
                      "16,9999"],
    lambda tmp_path: ["--engine.batch.policy", "fifo_packed", "--engine.batch.max-batch-tokens",
                      "64"],
    lambda tmp_path: ["--engine.kv.memory-bytes", "16KiB"],
    lambda tmp_path: ["--server.grpc.max-message-bytes", "1GiB", "--server.memory.limit-bytes",
                      "2GiB"],
    lambda tmp_path: ["--server.memory.limit-bytes", "1MiB"],
], ids=["no callers file", "malformed callers file", "no certificate", "half of a certificate",
        "profile", "device", "no folder for the journal", "a folder as journal", "ladder file",
        "no folder for the ladder file", "a bucket above the maximum", "a step below a sequence",
        "too few KV pages", "a message above the quota", "memory"])
def test_check_reports_the_error_of_the_start(tmp_path, options):
    given = without_ports(*map(str, options(tmp_path)))
    checked, started = run(*given, "--check"), run(*given)
    assert (checked.returncode, started.returncode) == (2, 1)
    error, = checked.stderr.splitlines()
    place = error.removeprefix("sluiced: ").split(": ")[0]
    assert place in started.stderr.splitlines()[-1]
    if "memory" not in place:  # The amount that the process takes differs.
        assert error == started.stderr.splitlines()[-1]


def model_with_a_large_vocabulary(folder, vocab):
    """Writes a model whose weights are zeros, which take no room on the disk."""
    model = TinyModel(folder, seed=1)
    shapes = {name: tensor.shape for name, tensor in model.tensors.items()}
    shapes |= {name: (vocab, D) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": vocab}))
    return folder


def test_check_states_how_much_memory_the_models_lack(tmp_path):
    # Head and embedding of a model take 0.25 GiB each. About a quarter of the limit is for models.
    one, two = (model_with_a_large_vocabulary(tmp_path / name, 1 << 22) for name in ("1", "2"))
    limit = "--server.memory.limit-bytes"
    models = "--model", f"one={one}", "--model", f"two={two}"
    assert run(*without_ports(*models[:2], limit, "3GiB"), "--check").returncode == 0
    assert run(*without_ports(*models, limit, "8GiB"), "--check").returncode == 0
    for given, size in ((models[:2], "1GiB"), (models, "3GiB")):
        checked = run(*without_ports(*given, limit, size), "--check")
        assert checked.returncode == 2, checked
        taken, free, missing = map(float, re.search(
            r"take ([\d.]+) MiB, but only ([\d.]+) MiB are free for models: ([\d.]+) MiB are",
            checked.stderr).groups())
        assert taken > 512 * len(given) / 2 and abs(taken - free - missing) < 0.2, checked


def test_check_reports_the_errors_of_all_parts(tmp_path):
    checked = run(*without_ports(
        "--model", f"a={tmp_path / 'first'}", "--model", f"b={tmp_path / 'second'}",
        "--server.auth.callers-file", str(tmp_path / "callers"),
        "--server.tls.certificate-file", str(tmp_path / "crt"),
        "--server.tls.key-file", str(tmp_path / "key"), "--cpu.profile", "nosuch"), "--check")
    assert checked.returncode == 2 and checked.stdout == ""
    lines = checked.stderr.splitlines()
    for named in ("first", "second", "server.auth.callers_file: ", "server.tls: ", "nosuch"):
        assert len([line for line in lines if named in line]) == 1, (named, lines)
    assert len(lines) == 5 and all(line.startswith("sluiced: ") for line in lines)
