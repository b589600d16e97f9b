"""Tests that tools/check_includes.py finds the includes that the layout forbids."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def check(root):
    return subprocess.run([sys.executable, ROOT / "tools/check_includes.py", root],
                          capture_output=True, text=True, check=False)


def plant(root, path, *headers):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f'#include "{header}"\n' for header in headers), encoding="utf-8")


@pytest.mark.parametrize(
    "path, header",
    [
        pytest.param(
            "kernels/cpu/planted.cc", "engine/engine.h", id="kernels may not include the engine"
        ),
        pytest.param(
            "kernels/cuda/planted.cu", "tests/support/x.h", id="kernels may not include tests"
        ),
        pytest.param(
            "engine/schedule/planted.h",
            "engine/runner/models/model_runner.h",
            id="the scheduler may not include the runner",
        ),
        pytest.param(
            "engine/ladder/planted.h",
            "engine/schedule/queue.h",
            id="the ladder may not include the queue",
        ),
        pytest.param(
            "engine/planted.h", "server/common/log.h", id="the engine may not include the server"
        ),
        pytest.param(
            "server/inference/planted.cc",
            "engine/runner/models/model_runner.h",
            id="folders of the engine are private",
        ),
        pytest.param(
            "server/net/planted.h",
            "server/daemon/server.h",
            id="the network may not include the daemon",
        ),
        pytest.param(
            "client/planted.cc", "server/daemon/server.h", id="client may not include server"
        ),
        pytest.param(
            "engine/cpu/planted.h",
            "cascades/attention_variants.h",
            id="the engine may not include cascades",
        ),
        pytest.param(
            "server/daemon/planted.cc",
            "cascades/einsum/egraph.h",
            id="the daemon may not include cascades",
        ),
        pytest.param("base/planted.h", "kernels/dtype.h", id="base may include no other folder"),
        pytest.param(
            "server/common/planted.h",
            "server/attic/planted.h",
            id="a folder without an entry is an error",
        ),
    ],
)
def test_a_forbidden_include_is_found(tmp_path, path, header):
    plant(tmp_path, path, "base/check.h")
    assert check(tmp_path).returncode == 0
    plant(tmp_path, path, header)
    result = check(tmp_path)
    assert result.returncode != 0
    assert f"{path}:1: includes {header}" in result.stdout


def test_headers_of_other_projects_may_be_included_by_all(tmp_path):
    plant(tmp_path, "base/planted.h", "absl/status/status.h", "gtest/gtest.h")
    assert check(tmp_path).returncode == 0


def test_a_source_that_no_list_of_cmake_names_is_found(tmp_path):
    plant(tmp_path, "base/planted.cc")
    plant(tmp_path, "base/parts/planted.cc")
    (tmp_path / "base/CMakeLists.txt").write_text("add_library(base planted.cc parts/${part}.cc)")
    assert check(tmp_path).returncode == 0
    plant(tmp_path, "base/other.cc")
    result = check(tmp_path)
    assert result.returncode != 0
    assert result.stdout.startswith("base/other.cc: no CMakeLists.txt names this source")
