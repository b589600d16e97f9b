"""Tests loadtest/gpu_check.sh with fake programs and as a rehearsal in the emulator."""

import json
import subprocess
import tarfile

import pytest
from conftest import ROOT
from waiting import PATIENCE_S

DEVICE = """{"device": {"name": "pretended", "architecture": "sm_0"}}"""
MEASURED = {
    "part": "kernels",
    "name": "copy (mix)",
    "shape": "1 x 1 bf16",
    "value": 2.0,
    "unit": "us",
    "bytes": 4e6,
    "operations": 0,
    "tensor_cores": False,
}


def check(*arguments, timeout=PATIENCE_S):
    return subprocess.run(
        [ROOT / "loadtest" / "gpu_check.sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture
def pack(tmp_path):
    """Packs fake programs for --programs. `bench` is gpu_bench as shell code; $1 is the part."""

    def make(bench):
        programs = tmp_path / "programs"
        programs.mkdir()
        for name, code in (("gpu_bench", bench), ("kernels_cuda_device_test", "exit 0"),
                           ("cuda_backend_device_test", "echo a test failed; exit 1")):
            (programs / name).write_text(f"#!/bin/sh\n{code}\n")
            (programs / name).chmod(0o755)
        with tarfile.open(tmp_path / "programs.tar.gz", "w:gz") as archive:
            archive.add(programs, arcname=".")
        return tmp_path / "programs.tar.gz"

    return make


def test_a_missing_device_is_reported(pack, tmp_path):
    ended = check(
        "--programs", pack("echo 'no device: no driver' >&2; exit 3"), "--out", tmp_path / "out"
    )
    assert ended.returncode == 3
    assert "gpu_check: no device: no driver" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_failed_part_is_named_and_the_other_parts_run(pack, tmp_path):
    measured = json.dumps({"measurements": [MEASURED]})
    ended = check(
        "--out",
        tmp_path / "out",
        "--programs",
        pack(
            f"case $1 in device) echo '{DEVICE}' ;; "
            f"products) exit 7 ;; *) echo '{measured}' ;; esac"
        ),
    )
    assert ended.returncode == 1, ended.stderr
    report = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
    outcomes = {part["part"]: part["outcome"] for part in report["parts"]}
    assert outcomes["kernels, products"] == "failed with status 7"
    assert outcomes["engine tests"] == "failed with status 1"
    assert "a test failed" in ended.stdout
    assert (
        outcomes["kernel tests"]
        == outcomes["kernels, rows"]
        == outcomes["kernels, draws"]
        == outcomes["plans"]
        == "ok"
    )
    assert report["device"]["name"] == "pretended"
    assert report["kernels"] == [MEASURED] * 2
    assert outcomes["algorithms"] == "not measured: no cuBLASLt"
    assert report["algorithms"] is None
    table = (tmp_path / "out" / "gpu_check.md").read_text()
    assert ended.stdout.endswith(table), "the table comes last"
    assert "| copy (mix) | 1 x 1 bf16 | 2.0 | 2000 | 100 % |" in table


def test_the_packed_libraries_suffice_for_a_build(tmp_path):
    ended = check("--pack-libraries", tmp_path / "libraries.tar.gz")
    assert ended.returncode == 0, ended.stderr
    with tarfile.open(tmp_path / "libraries.tar.gz") as archive:
        names = archive.getnames()
    for wanted in (
        "include/absl/status/statusor.h",
        "include/gmock/gmock.h",
        "include/nlohmann/json.hpp",
        "/cmake/absl/abslConfig.cmake",
        "/libabsl_status.so",
        "/libicuuc.so",
        "/libgtest.a",
    ):
        assert any(name.endswith(wanted) for name in names), wanted
    # The targets of the links are packed, too.
    assert any("/libicuuc.so." in name for name in names)
    assert not any(name.startswith(("/", "..")) for name in names)


def test_the_table_of_algorithms_is_kept(pack, tmp_path):
    device = json.dumps({"device": {"name": "G 1", "architecture": "sm_0", "library": "cublaslt1"}})
    table = json.dumps({"gpu": "G 1", "library": "cublaslt1", "layers": []})
    ended = check(
        "--out",
        tmp_path / "out",
        "--programs",
        pack(
            f"case $1 in device) echo '{device}' ;; tune) echo '{table}' ;; *) echo '{{}}' ;; esac"
        ),
    )
    kept = json.loads((tmp_path / "out" / "gpu_check.json").read_text())["algorithms"]
    assert kept == "algorithms_g-1_cublaslt1.json"
    assert (tmp_path / "out" / kept).read_text().strip() == table
    assert f"`{kept}`" in ended.stdout


@pytest.mark.parametrize("arguments", [["--pact"], ["--programs"], ["--programs", "/no/such/file"]])
def test_wrong_arguments_are_errors(arguments):
    assert check(*arguments).returncode in (1, 2)


def test_the_rehearsal_passes(tmp_path):
    ended = check("--rehearse", "--out", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert report["rehearsal"]
    assert {part["outcome"].split(":")[0] for part in report["parts"]} == {"ok", "not measured"}
    names = {measured["name"] for measured in report["kernels"]}
    assert {
        "position-wise projection",
        "attention, prefill, XSA",
        "XSA, norm form",
        "sampling, top-k 50",
    } <= names
    plans = {(m["name"], m["unit"]): m["value"] for m in report["plans"]}
    assert plans["captures over 100 sizes", "captures"] == 0
    assert "A rehearsal in the emulator" in ended.stdout
    assert report["algorithms"] == "algorithms_simt-emulator_pretended.json"
    assert report["algorithms"] in ended.stdout
    table = json.loads((tmp_path / report["algorithms"]).read_text())
    assert (table["gpu"], table["library"]) == ("SIMT emulator", "pretended")
    assert {layer["k"] for layer in table["layers"]} == {32, 40}
    assert sum(layer["head"] for layer in table["layers"]) == 1


def tune(*arguments):
    program = next((ROOT / "build" / "release").rglob("gpu_bench_emulated"))
    return subprocess.run(
        [program, "tune", "--rehearse", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_given_shapes_are_tuned_in_addition_to_the_benchmarks():
    ended = tune("--shape", "24,48,bias,gelu_tanh", "--shape", "24,48,f32,accumulate")
    assert ended.returncode == 0, ended.stderr
    layers = [layer for layer in json.loads(ended.stdout)["layers"] if layer["k"] == 24]
    named = {
        (layer["dtype"], layer["bias"], layer["accumulate"], layer["activation"])
        for layer in layers
    }
    assert named == {("bf16", True, False, "gelu_tanh"), ("f32", False, True, "none")}
    assert all("of 2, " in layer["note"] for layer in layers), "all that pass are timed"


@pytest.mark.parametrize("shape", ["24", "0,1", "1,0", "1,2,silu", "a,2", ""])
def test_a_malformed_shape_is_an_error(shape):
    assert "is no K,N" in tune("--shape", shape).stderr
