"""Tests loadtest/gpu_check.sh with fake programs."""

import json
import os
import tarfile

import pytest
from conftest import ROOT
from gpu_check import check, outcomes, records

DEVICE = {"name": "G 1", "architecture": "sm_0", "library": ""}
MEASURED = {
    "part": "products",
    "name": "dense projection",
    "shape": "L1 B64 4096 x 4096 bf16",
    "value": 120.0,
    "unit": "us",
    "bytes": 34e6,
    "operations": 2e9,
    "tensor_cores": True,
}
COPY = {
    "part": "ceilings",
    "name": "ceiling of memory",
    "shape": "1 bytes",
    "value": 1.0,
    "unit": "us",
    "bytes": 2e6,
}


@pytest.fixture
def pack(tmp_path):
    """Packs fake programs for --programs. `bench` is Python code that replaces gpu_bench `run`; it
    can use the names `case` and `cases`. `parts` are the cases of each part."""

    def make(bench="", parts=None, device=DEVICE, tune="{}", tests=""):
        listed = {"ceilings": ["copy"], "products": ["a", "b", "c"], **(parts or {})}
        programs = tmp_path / "pack" / "programs"
        programs.mkdir(parents=True)
        fake = f"""#!/usr/bin/env python3
import json, os, signal, sys
verb, cases = sys.argv[1], sys.argv[2:]
def say(**line): print(json.dumps(line), flush=True)
def end(case, *measured):
    for each in measured: say(measurement=each)
    say(end=case, problems=[])
MEASURED = {MEASURED!r}
COPY = {COPY!r}
if verb == "device":
    device = {device!r}
    if not device:
        print("no device: no driver", file=sys.stderr)
        sys.exit(3)
    say(**device)
elif verb == "table":
    say(kernel="Mix", case="copy", blocks=1, threads=32, shared_bytes=7, registers=40,
        local_bytes=16, occupancy=0.5)
elif verb == "list":
    for case in {listed!r}.get(cases[0], []): say(part=cases[0], case=case)
elif verb == "tune":
    print({tune!r})
elif verb == "run":
    for case in cases:
        say(start=case)
        if case == "copy": end(case, COPY)
{"".join(f"        {line}{chr(10)}" for line in bench.splitlines())}
"""
        gtest = f"""#!/usr/bin/env python3
import os, signal, sys
names = ["One", "Two", "Three"]
chosen = sys.argv[-1].removeprefix("--gtest_filter=")
if "--gtest_list_tests" in sys.argv:
    print("FakeTest.\\n  " + "\\n  ".join(names) + "  # GetParam() = cuda-cublaslt-bf16")
    sys.exit()
for name in names:
    if "FakeTest." + name not in chosen.split(":"): continue
    print(f"[ RUN      ] FakeTest.{{name}}", flush=True)
{"".join(f"    {line}{chr(10)}" for line in tests.splitlines())}
    print(f"[       OK ] FakeTest.{{name}} (1 ms)", flush=True)
"""
        for name, code in (("gpu_bench", fake), ("kernels_test", gtest), ("backend_test", gtest)):
            (programs / name).write_text(code.replace("\\\\n", "\\n"))
            (programs / name).chmod(0o755)
        with tarfile.open(tmp_path / "pack.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "pack", arcname=".")
        return tmp_path / "pack.tar.gz"

    return make


def test_a_missing_device_is_reported(pack, tmp_path):
    ended = check("--programs", pack(device={}), "--out", tmp_path / "out")
    assert ended.returncode == 3
    assert "gpu_check: no device: no driver" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_crash_or_failure_loses_only_one_case(pack, tmp_path):
    bench = """
if case == "a": os.kill(os.getpid(), signal.SIGSEGV)
if case == "b": sys.exit("no memory")
if case == "c": end(case, MEASURED)
"""
    out = tmp_path / "out"
    ended = check("--out", out, "--programs", pack(bench), "--only", "ceilings,products")
    assert ended.returncode == 1, ended.stderr
    assert outcomes(out, "products") == {
        "a": "crashed: ended by SIGSEGV", "b": "crashed: ended with status 1", "c": "ok"}
    assert outcomes(out) == {"ceilings": "ok", "products": "2 of 3 failed"}
    detail = {each.get("case"): each.get("detail", "") for each in records(out)}
    assert "no memory" in detail["b"], "the program's last output is kept"
    assert "no memory" in (out / "gpu_check.log").read_text()
    with tarfile.open(out / "gpu_check_raw.tar.gz") as archive:
        assert "products.log" in archive.getnames()


def test_hung_case_is_killed_and_the_others_run(pack, tmp_path):
    bench = """
if case == "b": signal.pause()
end(case, MEASURED)
"""
    out = tmp_path / "out"
    ended = check("--out", out, "--programs", pack(bench), "--only", "products",
                  environment={"SLUICE_GPU_CHECK_CASE_S": "10"})
    assert ended.returncode == 1
    assert outcomes(out, "products") == {"a": "ok", "b": "hung: no end after 10 s", "c": "ok"}


def test_cases_without_time_are_reported(pack, tmp_path):
    out = tmp_path / "out"
    bench = """
if case == "b": signal.pause()
end(case, MEASURED)
"""
    programs = pack(bench)
    check("--out", out, "--programs", programs, "--only", "products", "--budget", "5")
    assert not {"b", "c"} & set(outcomes(out, "products"))
    assert outcomes(out)["products"].startswith("no time for ")
    check("--out", out, "--programs", programs, "--only", "products", "--budget", "0")
    assert outcomes(out) == {"products": "not measured: no time"}


def test_stopped_run_writes_its_report_and_can_be_resumed(pack, tmp_path):
    out, ran, stop = tmp_path / "out", tmp_path / "ran", tmp_path / "stop"
    programs = pack(f"""
end(case, MEASURED)
open({str(ran)!r}, "a").write(case)
while case == "b" and os.path.exists({str(stop)!r}):
    if '"case": "b"' in open({str(out / "cases.jsonl")!r}).read():
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
""")
    stop.touch()
    ended = check("--out", out, "--programs", programs, "--only", "products,rows")
    assert ended.returncode == 1
    assert outcomes(out, "products") == {"a": "ok", "b": "ok"}
    assert "dense projection" in (out / "gpu_check.md").read_text()
    assert (out / "gpu_check_raw.tar.gz").exists()
    stop.unlink()
    ended = check("--out", tmp_path / "next", "--programs", programs, "--only", "products",
                  "--resume", out)
    assert ended.returncode == 0, ended.stderr
    assert outcomes(tmp_path / "next", "products") == {"a": "ok", "b": "ok", "c": "ok"}
    assert ran.read_text() == "abc", "each case ran once"


def test_crashed_or_failed_test_affects_no_other_test(pack, tmp_path):
    tests = """
if name == "One": os.kill(os.getpid(), signal.SIGABRT)
if name == "Two":
    print("the value is wrong", flush=True)
    print("[  FAILED  ] FakeTest.Two (1 ms)", flush=True)
    poisoned = True
    continue
assert not globals().get("poisoned")
"""
    out = tmp_path / "out"
    ended = check("--out", out, "--programs", pack(tests=tests), "--only", "kernel-tests")
    assert ended.returncode == 1
    assert outcomes(out, "kernel-tests") == {
        "FakeTest.One": "crashed: ended by SIGABRT", "FakeTest.Two": "failed",
        "FakeTest.Three": "ok"}
    assert "the value is wrong" in json.dumps(records(out))


def test_tests_with_the_library_profile_are_a_separate_part(pack, tmp_path):
    out = tmp_path / "out"
    programs = pack(device={**DEVICE, "library": "cublaslt1"})
    check("--out", out, "--programs", programs, "--only", "engine-own,engine-cublaslt")
    assert outcomes(out, "engine-own") == {"FakeTest.One": "ok", "FakeTest.Two": "ok"}
    assert outcomes(out, "engine-cublaslt") == {"FakeTest.Three": "ok"}


def tool(tmp_path, name, code):
    """Creates a fake tool and returns an environment whose PATH finds it."""
    (tmp_path / "tools").mkdir(exist_ok=True)
    (tmp_path / "tools" / name).write_text(f"#!/bin/sh\n{code}\n")
    (tmp_path / "tools" / name).chmod(0o755)
    return {"PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}"}


def test_sanitizer_finding_fails_the_running_test(pack, tmp_path):
    programs = pack(tests="""
if name == "Two": print("========= Invalid __global__ write of size 4 bytes", flush=True)
""")
    found = tool(tmp_path, "compute-sanitizer", "shift 4; echo ========= COMPUTE-SANITIZER; \"$@\"")
    out = tmp_path / "out"
    ended = check("--out", out, "--programs", programs, "--only", "racecheck", environment=found)
    assert ended.returncode == 1
    assert outcomes(out, "racecheck") == {
        "FakeTest.One": "ok", "FakeTest.Three": "ok",
        "FakeTest.Two": "failed: racecheck: Invalid __global__ write of size 4 bytes"}


def test_profiles_are_kept_and_a_missing_profile_is_a_failure(pack, tmp_path):
    profiler = """
case $* in
  *--import*decode*) echo Duration 7 us ;;
  *--import*) echo nothing ;;
  *) while [ "$1" != --export ]; do shift; done; echo profile >$2.ncu-rep ;;
esac"""
    out = tmp_path / "out"
    check("--out", out, "--programs", pack(), "--only", "ncu",
          environment=tool(tmp_path, "ncu", profiler))
    found = outcomes(out, "ncu")
    assert found.pop("decode_attention") == "ok"
    assert len(found) == 8 and set(found.values()) == {"failed: no launch was profiled"}
    with tarfile.open(out / "gpu_check_raw.tar.gz") as archive:
        assert {"ncu_decode_attention.ncu-rep", "ncu_decode_attention.txt"} <= set(
            archive.getnames())


def test_figures_before_a_crash_are_kept(pack, tmp_path):
    out = tmp_path / "out"
    check("--out", out, "--programs", pack("""
say(measurement=MEASURED)
if case == "a": os.abort()
end(case)
"""), "--only", "products")
    kept = {each["case"]: len(each["measurements"]) for each in records(out) if "case" in each}
    assert kept == {"a": 1, "b": 1, "c": 1}


def test_figures_are_printed_with_floor_and_prediction(pack, tmp_path):
    out = tmp_path / "out"
    ended = check("--out", out, "--programs", pack("if case == 'a': end(case, MEASURED)"),
                  "--only", "table,ceilings,products")
    report = json.loads((out / "gpu_check.json").read_text())
    figure = next(each for each in report["figures"] if each["name"] == "dense projection")
    assert report["bytes_per_second"] == pytest.approx(2e12)
    assert figure["floor"] == pytest.approx(17)
    assert figure["of_floor"] == pytest.approx(120 / 17)
    estimates = json.loads((ROOT / "loadtest" / "gpu" / "roofline.json").read_text())["cases"]
    estimate = next(each for each in estimates if each["id"] == figure["id"])
    assert figure["roofline"] == estimate["us"] and figure["bound"] == estimate["bound"]
    assert figure["of_roofline"] == pytest.approx(120 / estimate["us"])
    assert f" {estimate['bound']} | " in ended.stdout
    predictions = json.loads((ROOT / "loadtest" / "gpu" / "predictions.json").read_text())["cases"]
    high = next(each["high"] for each in predictions if each["id"] == figure["id"])
    assert figure["predicted"][1] == high
    assert figure["surprise"] == pytest.approx(120 / high)
    assert (f"L1 B64 4096 x 4096 bf16: 120 us, {120 / high:.2f} times the prediction"
            in ended.stdout)
    assert "| Mix | 32 | 40 | 16 | 7 |" in ended.stdout
    assert ended.stdout.endswith((out / "gpu_check.md").read_text()), "the report is printed last"


def test_nodes_of_xsa_are_printed_next_to_the_kernels_of_pytorch(pack, tmp_path):
    counted = {"name": "XSA after attention, norm form, kernels", "shape": "8/2 heads of 64 bf16"}
    bench = f"""
if case == "a":
    counted = {counted!r}
    end(case, {{**counted, "part": "plans", "value": 0, "unit": "nodes"}},
        {{**counted, "part": "peers", "value": 2, "unit": "kernels", "peer": "expanded"}})
"""
    ended = check("--out", tmp_path / "out", "--programs", pack(bench), "--only", "products")
    row = "| XSA after attention, norm form | 8/2 heads of 64 bf16 | 0 | expanded 2 |"
    assert row in ended.stdout
    assert "times as fast" not in ended.stdout


def test_packed_libraries_are_complete(tmp_path):
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
    # The archive also contains the targets of the links.
    assert any("/libicuuc.so." in name for name in names)
    assert not any(name.startswith(("/", "..")) for name in names)


def test_the_table_of_algorithms_is_kept(pack, tmp_path):
    table = json.dumps({"gpu": "G 1", "library": "cublaslt1", "layers": []})
    ended = check("--out", tmp_path / "out", "--programs",
                  pack(device={**DEVICE, "library": "cublaslt1"}, tune=table), "--only", "tune")
    kept = json.loads((tmp_path / "out" / "gpu_check.json").read_text())["algorithms"]
    assert kept == ["algorithms_g-1_cublaslt1.json"]
    assert (tmp_path / "out" / kept[0]).read_text().strip() == table
    assert f"`{kept[0]}`" in ended.stdout


@pytest.mark.parametrize("arguments", [["--pact"], ["--programs"], ["--programs", "/no/such/file"]])
def test_wrong_arguments_are_errors(arguments):
    assert check(*arguments).returncode in (1, 2)


def test_an_unknown_part_is_an_error(pack, tmp_path):
    ended = check("--out", tmp_path / "out", "--programs", pack(), "--only", "product")
    assert ended.returncode == 2
    assert "unknown parts: product" in ended.stderr
