"""Tests configuration reloads by SIGHUP and by `sluice reload` (fault 22 of tests/faults.md)."""

import signal
import subprocess

import pytest
from always import undisturbed
from conftest import DEMO, SLUICE
from infer import text_inputs
from waiting import PATIENCE_S, Gate, wait_until


@pytest.fixture
def configured(daemon, tmp_path):
    """A daemon with a configuration file, and a function that writes it."""
    path = tmp_path / "sluice.yaml"

    def write(more=""):
        path.write_text(f"models:\n  - {{name: demo, path: {DEMO}}}\n{more}")

    write()
    return daemon("--config", str(path), models=()), write, path


def reloads(server, result):
    return server.metric("sluice_config_reloads_total", result=result)


def hangup(server):
    """Sends SIGHUP and waits until the reload has ended."""
    before = reloads(server, "ok") + reloads(server, "error")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: reloads(server, "ok") + reloads(server, "error") > before)


def reload(server):
    return subprocess.run(
        [SLUICE, "reload", "--admin", server.admin],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def to_nothing(path):
    path.unlink()


def to_a_directory(path):
    path.unlink()
    path.mkdir()


def to_an_io_error(path):
    path.unlink()
    path.symlink_to("/proc/self/mem")  # Reading this file at offset 0 fails with EIO.


@pytest.mark.parametrize("begin", [
    lambda server: server.process.send_signal(signal.SIGHUP),
    lambda server: subprocess.Popen([SLUICE, "load", "demo", "--admin", server.admin],
                                    stderr=subprocess.DEVNULL),
], ids=["reload", "load"])
def test_a_termination_ends_a_load_in_progress(daemon, tmp_path, begin):
    path, gate = tmp_path / "sluice.yaml", Gate(tmp_path / "gate")
    models = f"models:\n  - {{name: demo, path: {DEMO}}}\n"
    path.write_text(models)
    # The drain would end the process if the load took longer.
    server = daemon("--config", str(path), "--server.lifecycle.drain-timeout", f"{PATIENCE_S}s",
                    models=(), faults=f"load:delay=0*1;load:{gate}*1")
    path.write_text(f"{models}  - {{name: more, path: {DEMO}}}\n")
    load = begin(server)
    gate.await_met()
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not server.ready())
    gate.open()
    output, _ = server.process.communicate(timeout=PATIENCE_S)
    assert server.process.returncode == 0, output
    assert "the process received a termination signal" in output
    if load:
        assert load.wait(PATIENCE_S) == 1


def test_a_hangup_during_the_start_reloads_after_it(daemon, gate, tmp_path):
    path, loading = tmp_path / "sluice.yaml", gate("loading")
    models = f"models:\n  - {{name: demo, path: {DEMO}}}\n"
    path.write_text(models)
    server = daemon("--config", str(path), models=(), faults=f"load:{loading}*1", awaited="/livez")
    loading.await_met()
    path.write_text(models + "server:\n  log: {level: warn}\n")
    server.process.send_signal(signal.SIGHUP)
    loading.open()
    wait_until(lambda: reloads(server, "ok") == 1)
    assert reload(server).stdout == "reloaded; no option and no model changed\n"


@pytest.mark.parametrize("spoil, reason", [
    (lambda path: path.write_text("models: [\n"), "sluice.yaml"),
    (lambda path: path.write_text("server:\n  grpcc: {}\n"), "unknown key"),
    (lambda path: path.write_text("server:\n  log: {level: loud}\n"), "server.log.level"),
    (lambda path: path.write_text("models:\n  - {name: demo, path: /nowhere}\n"), "/nowhere"),
    (lambda path: path.write_bytes(b"\xff\xfe\x00" * 99), "sluice.yaml"),
    (to_nothing, "sluice.yaml"),
    (to_a_directory, "sluice.yaml"),
    (to_an_io_error, "sluice.yaml"),
], ids=["yaml", "key", "value", "model", "bytes", "absent", "directory", "eio"])
def test_a_bad_configuration_changes_nothing(configured, spoil, reason):
    server, write, path = configured
    with undisturbed(server):
        assert server.metric("sluice_config_reload_success") == 1
        spoil(path)
        hangup(server)
        assert server.metric("sluice_config_reload_success") == 0
        assert reloads(server, "error") == 1
        failed = reload(server)
        assert failed.returncode == 1 and reason in failed.stderr
        assert reloads(server, "error") == 2
        if path.is_dir():
            path.rmdir()
        if path.is_symlink():
            path.unlink()
        write()
        assert reload(server).returncode == 0
        assert server.metric("sluice_config_reload_success") == 1


def test_a_reload_applies_options_or_names_those_that_need_a_restart(configured):
    server, write, _ = configured
    with undisturbed(server):
        assert reload(server).stdout == "reloaded; no option and no model changed\n"
        write(
            "server:\n  grpc: {max_rows: 7}\n  log: {level: warn}\n"
            "engine:\n  batch: {max_batch_sequences: 9}\n"
        )
        told = reload(server).stdout
        assert "applied: server.grpc.max_rows, server.log.level" in told
        assert "needs a restart: engine.batch.max_batch_sequences" in told
        with server.client() as client:
            assert client.get_model_config("demo").config.max_batch_size == 7
        # Every reload before the restart names the option again.
        assert "engine.batch.max_batch_sequences" in reload(server).stdout


def test_a_reload_changes_the_share_of_requests_in_the_access_log(configured):
    server, write, _ = configured

    def asked(name, share):
        write(f"server:\n  log: {{access_sample: {share}}}\n")
        assert "applied: server.log.access_sample" in reload(server).stdout
        with server.client() as client:
            client.infer("demo", text_inputs("And"), request_id=name)

    asked("unseen", 0)
    asked("seen", 1)
    asked("unseen-again", 0)
    log = server.stop()
    assert "id=seen " in log
    assert "unseen" not in log


def test_a_hangup_logs_applied_options_and_those_that_need_a_restart(configured):
    server, write, _ = configured
    write(
        "server:\n  grpc: {max_rows: 7, max_streams: 9}\n"
        "engine:\n  batch: {max_batch_sequences: 9}\n"
    )
    hangup(server)
    log = server.stop()
    assert "reloaded applied=server.grpc.max_rows\n" in log
    assert (
        "changed options need a restart "
        'options="engine.batch.max_batch_sequences server.grpc.max_streams"\n'
        in log
    )


def test_a_reload_loads_and_unloads_the_listed_models(configured):
    server, write, _ = configured
    with undisturbed(server), server.client() as client:
        write(f"  - {{name: second, path: {DEMO}}}\n")
        assert "applied: models" in reload(server).stdout
        assert client.is_model_ready("second")
        write()
        hangup(server)
        assert not client.is_model_ready("second") and client.is_model_ready("demo")
