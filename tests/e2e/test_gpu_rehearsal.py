"""Tests gpu_bench and loadtest/gpu_check.sh with the real kernels in the emulator."""

import json
import re
import subprocess
import sys
import tarfile

import pytest
from conftest import ROOT
from gpu_check import check, outcomes, records
from waiting import PATIENCE_S

# The program that is packed: the release build, including the kernels.
GPU_BENCH = ROOT / "build" / "release" / "loadtest" / "gpu" / "gpu_bench_emulated"
# The cases that crash and hang. The rehearsal must measure all others.
CRASHES = "copy (mix); 40 x 64 bf16"
HANGS = "attention, decode; 3 x 1 of 70, 4/2 heads of 16 bf16"


def test_every_prediction_belongs_to_a_case():
    """A prediction for a renamed case would never be compared."""
    table = json.loads((ROOT / "loadtest" / "gpu" / "predictions.json").read_text())
    listed = subprocess.run([GPU_BENCH, "list"], capture_output=True, text=True, check=True)
    cases = {json.loads(line)["case"] for line in listed.stdout.splitlines()}
    # These captures measure several values per case.
    of_captures = {f"{what}; bucket of {tokens} tokens"
                   for what in ("capture", "memory of a capture")
                   for tokens in (64, 256, 1024, 4096)}
    of_replay = {"step, eager launches / replay; bucket of 64 tokens"}
    unknown = {case["id"] for case in table["cases"]} - cases - of_captures - of_replay
    assert not unknown


def test_roofline_matches_the_kernels():
    """Every timed case has an estimate, and the estimates match the current counters."""
    subprocess.run([sys.executable, ROOT / "loadtest" / "gpu" / "roofline.py", "--check",
                    "--program", GPU_BENCH], check=True)


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory):
    """Packs the emulator's programs, unpacks them in another folder and runs them there."""
    folder = tmp_path_factory.mktemp("gpu_check")
    trace = folder / "arrivals.csv"
    rows = "".join(f"{i},{3 + 7 * i % 200},1\n" for i in range(50))
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    packed = check("--pack", folder / "pack.tar.gz", "--trace", trace, "--rehearse",
                   environment={"SLUICE_GPU_CHECK_BUILD": "0"})
    assert packed.returncode == 0, packed.stdout + packed.stderr
    bare = folder / "bare"
    with tarfile.open(folder / "pack.tar.gz") as archive:
        # Python 3.11.2 of Debian 12 has no extraction filters.
        filtered = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(bare, **filtered)
    faults = f"crash={CRASHES}|hang={HANGS}"
    ended = check("--out", folder / "out", script=bare / "loadtest" / "gpu_check.sh",
                  timeout=6 * PATIENCE_S,
                  environment={"SLUICE_GPU_BENCH_FAULTS": faults, "SLUICE_GPU_CHECK_CASE_S": "60"})
    return ended, folder / "out"


def test_packed_rehearsal_loses_only_the_faulty_cases(rehearsal):
    ended, out = rehearsal
    assert ended.returncode == 1, ended.stdout + ended.stderr
    bad = {each["case"]: each["outcome"] for each in records(out)
           if each.get("outcome", "").startswith(("failed", "crashed", "hung")) and "case" in each}
    assert bad == {CRASHES: "crashed: ended by SIGSEGV", HANGS: "hung: no end after 60 s"}
    listed = subprocess.run([GPU_BENCH, "list", "--rehearse"], capture_output=True, text=True,
                            check=True)
    wanted = {json.loads(line)["case"] for line in listed.stdout.splitlines()}
    good = {each["case"] for each in records(out) if each.get("measurements")}
    assert wanted - good == {CRASHES, HANGS}
    unexpected = [text for text in outcomes(out).values()
                  if not re.fullmatch(r"not measured:.*|ok|1 of \d+ failed", text)]
    assert not unexpected
    assert "A rehearsal in the emulator" in ended.stdout


def test_the_rehearsal_has_kernels_plans_algorithms_and_the_daemon(rehearsal):
    _, out = rehearsal
    report = json.loads((out / "gpu_check.json").read_text())
    assert report["rehearsal"]
    values = {(m["name"], m["unit"]): m["value"] for m in report["figures"]}
    assert values["captures over 100 sizes", "captures"] == 0
    for form in ("norm", "squared"):
        assert values[f"XSA, {form} form, kernels", "nodes"] == 1
        assert values[f"XSA after attention, {form} form, kernels", "nodes"] == 0
    launched = {launch["kernel"] for launch in report["launches"]}
    for kind in ("Attention", "Sample"):  # Their names have the layout of rows.
        assert any(each.startswith(kind) for each in launched), launched
    assert report["algorithms"] == ["algorithms_simt-emulator_pretended.json"]
    table = json.loads((out / report["algorithms"][0]).read_text())
    assert (table["gpu"], table["library"]) == ("SIMT emulator", "pretended")
    assert {layer["k"] for layer in table["layers"]} == {32, 40}
    # The 61 columns of the head are padded, because the library refuses unaligned rows.
    assert {layer["n"] for layer in table["layers"] if layer["head"]} == {64}
    daemon = outcomes(out, "daemon")
    assert daemon.pop("illegal access").startswith(("ok", "not measured:"))
    assert set(daemon.values()) == {"ok"} and len(daemon) >= 7


def test_the_rehearsal_has_the_evidence_for_buckets(rehearsal):
    _, out = rehearsal
    report = json.loads((out / "gpu_check.json").read_text())
    names = {m["name"] for m in report["figures"]}
    for fill in (50, 70, 90, 100):
        assert f"step, replay at {fill}%" in names
        assert f"step, launches one by one at {fill}%" in names
    computed = {(m["shape"], m["name"]): m["value"] for m in report["figures"]
                if m["name"].startswith("computed rows")}
    library = "tiny, prefill, cublaslt; bucket of 24 tokens"
    own = library.replace("cublaslt", "own")
    assert computed[library, "computed rows at 50%"] == 32, "24 rows are no number of the library"
    assert computed[own, "computed rows at 50%"] == 12
    traces = outcomes(out, "trace")
    assert set(traces.values()) == {"ok"} and len(traces) == 2
    efficiencies = [m["value"] for m in report["figures"] if m["name"] == "executed efficiency"]
    assert len(efficiencies) == 2 and all(0 < value <= 1 for value in efficiencies)


def tune(*arguments):
    return subprocess.run(
        [GPU_BENCH, "tune", "--rehearse", *arguments],
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
    assert all("of 2, " in layer["note"] for layer in layers), "all algorithms that pass are timed"


@pytest.mark.parametrize("shape", ["24", "0,1", "1,0", "1,2,silu", "a,2", ""])
def test_a_malformed_shape_is_an_error(shape):
    assert "is not K,N" in tune("--shape", shape).stderr
