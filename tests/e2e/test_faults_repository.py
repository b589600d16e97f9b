"""Tests loading models under load, and invalid models (fault 9 of tests/faults.md)."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import tritonclient.grpc as grpcclient
from always import undisturbed
from conftest import DEMO, SLUICE
from infer import infer, text_inputs
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, wait_until


@pytest.fixture
def repository(tmp_path):
    """A model repository with version 1 of "demo"."""
    root = tmp_path / "models"
    shutil.copytree(DEMO, root / "demo" / "1")
    return root


def serving(daemon, repository, *options):
    return daemon("--model-repository", str(repository), *options, models=())


def index(admin):
    listed = admin.get_model_repository_index(as_json=True).get("models", [])
    return {(model["name"], model.get("version", "")): (model["state"], model.get("reason", ""))
            for model in listed}


def answer(server, model="demo"):
    with server.client() as client:
        return infer(client, text_inputs("In the "), model=model, max_tokens=4)[
            "output_ids"
        ].tolist()


def refused(call, *arguments, **named):
    with pytest.raises(InferenceServerException) as refusal:
        call(*arguments, **named)
    return str(refusal.value)


def truncated(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(whole[: len(whole) // 2])


def leads_out(folder):
    outside = folder.parents[2] / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    os.symlink(outside, folder / "model.safetensors")


def too_long(folder):
    (folder / "config.json").write_text(" " * (2 << 20))


@pytest.mark.parametrize("spoil, reason", [
    (truncated, "safetensors"),
    (leads_out, "out of the root directory"),
    (too_long, "config.json has 2097152 bytes"),
])
def test_a_bad_version_is_refused_and_the_old_one_serves(daemon, repository, spoil, reason):
    served = serving(daemon, repository)
    before = answer(served)
    shutil.copytree(DEMO, repository / "demo" / "2")
    spoil(repository / "demo" / "2")
    with undisturbed(served), grpcclient.InferenceServerClient(served.admin) as admin:
        assert reason in refused(admin.load_model, "demo")
        states = index(admin)
    assert states["demo", "1"] == ("READY", "")
    state, why = states["demo", "2"]
    assert state == "UNAVAILABLE" and reason in why
    assert answer(served) == before
    assert served.metric("sluice_model_loads_total", result="error") == 1
    assert served.metric("sluice_model_loads_total", result="ok") == 1  # the start
    output = served.stop()
    lines = [line for line in output.splitlines() if " error load failed " in line]
    assert len(lines) == 1 and "model=demo" in lines[0] and reason in lines[0], output


def test_model_names_cannot_leave_the_repository(daemon, repository):
    shutil.copytree(DEMO, repository.parent / "secret")
    os.symlink("../secret", repository / "link")
    served = serving(daemon, repository)
    with undisturbed(served), grpcclient.InferenceServerClient(served.admin) as admin:
        for name in ("../secret", "/etc", "..", ".", "", "demo/1", "x" * 200, "demo\n"):
            assert "is not a valid model name" in refused(admin.load_model, name), name
        assert "out of the root directory" in refused(admin.load_model, "link")
        assert set(index(admin)) == {("demo", "1"), ("link", "")}


def test_models_are_loaded_and_unloaded_under_load(daemon, repository):
    served = serving(daemon, repository)
    with undisturbed(served) as bystander, grpcclient.InferenceServerClient(served.admin) as admin:
        shutil.copytree(DEMO, repository / "second")
        admin.load_model("second")
        assert answer(served, "second") == answer(served)
        # The model is reloaded in place, and the bystander keeps getting the same bits.
        for _ in range(3):
            calls = bystander.calls
            admin.load_model("demo")
            wait_until(lambda: bystander.calls >= calls + 2 or bystander.failure is not None)
        shutil.copytree(DEMO, repository / "demo" / "7")
        admin.load_model("demo")
        states = index(admin)
        assert states["demo", "7"][0] == "READY" and states["demo", "1"] == (
            "UNAVAILABLE",
            "not loaded",
        )
        admin.unload_model("second")
        assert index(admin)["second", "1"] == ("UNAVAILABLE", "not loaded")
        assert "NOT_FOUND" in refused(answer, served, "second")
        assert "second" in refused(admin.unload_model, "second")


def test_the_client_loads_and_unloads_models(daemon, repository):
    served = serving(daemon, repository)
    shutil.copytree(DEMO, repository / "other")

    def sluice(*arguments):
        return subprocess.run(
            [SLUICE, *arguments, "--server", served.grpc, "--admin", served.admin],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    assert sluice("load", "other").stdout == "loaded other\n"
    assert answer(served, "other")
    assert "other" in sluice("models").stdout
    assert sluice("unload", "other").stdout == "unloaded other\n"
    missing = sluice("load", "absent")
    assert missing.returncode == 1 and "NOT_FOUND" in missing.stderr
    # The inference port refuses to load models.
    with served.client() as client:
        assert "server.admin.address" in refused(client.load_model, "other")


def change_config(**keys):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **keys}))

    return change


BROKEN = {
    "an empty object": lambda folder: (folder / "config.json").write_text("{}"),
    "not JSON": lambda folder: (folder / "config.json").write_text("{"),
    "no config.json": lambda folder: (folder / "config.json").unlink(),
    "an unknown architecture": change_config(architectures=["NoSuchModel"]),
    "another width": change_config(intermediate_size=8),
    "one more layer": change_config(num_hidden_layers=9),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "half of the weights": truncated,
}


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=list(BROKEN))
def test_a_check_finds_what_the_start_would_find(tmp_path, spoil):
    from conftest import SLUICED

    folder = tmp_path / "m"
    shutil.copytree(DEMO, folder)
    addresses = ["--server.grpc.address=127.0.0.1:0", "--server.metrics.address=",
                 "--server.admin.address="]

    def run(*arguments):
        return subprocess.run([SLUICED, "--model", folder, *addresses, *arguments],
                              capture_output=True, text=True, timeout=PATIENCE_S)

    valid = run("--check")
    assert valid.returncode == 0
    assert valid.stdout.startswith("The configuration is valid; models: 1.\n"), valid.stdout
    spoil(folder)
    checked, started = run("--check"), run()
    assert checked.returncode == 2 and started.returncode == 1
    reason = checked.stderr.splitlines()[-1].removeprefix("sluiced: ")
    # The start may add the model's version and folder.
    assert reason.split(": ")[-1] in started.stderr, (checked.stderr, started.stderr)


def test_a_check_warns_of_unknown_keys(tmp_path):
    from conftest import SLUICED

    folder = tmp_path / "m"
    shutil.copytree(DEMO, folder)
    change_config(max_position_embedings=9)(folder)
    checked = subprocess.run([SLUICED, "--model", folder, "--check"], capture_output=True,
                             text=True, timeout=PATIENCE_S)
    assert checked.returncode == 0 and "valid" in checked.stdout
    assert "max_position_embedings" in checked.stderr


def test_bad_model_of_the_repository_is_left_out_at_the_start(daemon, repository):
    shutil.copytree(DEMO, repository / "broken" / "3")
    truncated(repository / "broken" / "3")
    served = serving(daemon, repository)

    def sluice(*arguments):
        return subprocess.run(
            [SLUICE, *arguments, "--server", served.grpc, "--admin", served.admin],
            capture_output=True, text=True, timeout=PATIENCE_S)

    def loads(result):
        return served.metric("sluice_model_loads_total", result=result)

    before = answer(served)
    assert served.ready() and (loads("ok"), loads("error")) == (1, 1)
    assert served.metric("sluice_models_failed") == 1
    with grpcclient.InferenceServerClient(served.admin) as admin:
        state, why = index(admin)["broken", "3"]
        assert state == "UNAVAILABLE" and "safetensors" in why
        with pytest.raises(InferenceServerException, match="no model 'broken'; served: demo"):
            answer(served, "broken")
        assert "broken" in sluice("models").stdout
        doctor = sluice("doctor", "--metrics-address", served.http)
        assert doctor.returncode != 0
        assert "model broken version 3: UNAVAILABLE, the last load failed" in doctor.stdout
        # A reload tries again, and does not fail for it.
        reloaded = sluice("reload")
        assert reloaded.returncode == 1 and reloaded.stdout.startswith("reloaded; "), reloaded
        assert "not loaded: broken version 3: " in reloaded.stderr, reloaded
        assert loads("error") == 2 and answer(served) == before
        assert served.metric("sluice_config_reload_success") == 1
        shutil.rmtree(repository / "broken" / "3")
        shutil.copytree(DEMO, repository / "broken" / "3")
        assert sluice("load", "broken").returncode == 0
        assert index(admin)["broken", "3"] == ("READY", "")
        assert answer(served, "broken") == before
        assert served.metric("sluice_models_failed") == 0
    output = served.stop()
    lines = [line for line in output.splitlines() if " error load failed " in line]
    assert len(lines) == 2 and all("model=broken" in line for line in lines), output


def test_a_bad_model_prevents_the_start(repository):
    from conftest import SLUICED

    truncated(pathlib.Path(repository / "demo" / "1"))
    run = subprocess.run(
        [
            SLUICED,
            "--model-repository",
            repository,
            "--server.grpc.address",
            "127.0.0.1:0",
            "--server.metrics.address=",
            "--server.admin.address=",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 1 and "safetensors" in run.stderr and "ready" not in run.stdout


def test_an_empty_repository_is_not_ready_until_a_model_is_loaded(daemon, tmp_path):
    root = tmp_path / "models"
    (root / "empty").mkdir(parents=True)
    served = serving(daemon, root, "--server.lifecycle.ready-without-models=true")
    served.stop()
    log = tmp_path / "log"
    with log.open("w") as output:
        waiting = daemon("--model-repository", str(root), models=(), log=output, awaited="/livez")
    assert not waiting.ready()
    wait_until(lambda: "not ready: gRPC on port" in log.read_text())
    assert "no model is served, so the daemon is not ready" in log.read_text()
    with grpcclient.InferenceServerClient(waiting.admin) as admin:
        assert admin.is_server_live() and not admin.is_server_ready()
        shutil.copytree(DEMO, root / "demo")
        admin.load_model("demo")
        assert admin.is_server_ready() and waiting.ready()
        assert answer(waiting)
        admin.unload_model("demo")
        assert not waiting.ready() and waiting.live()
