"""Tests that all files and programs have the version of CMakeLists.txt."""

import json
import os
import re
import subprocess

import pytest
from conftest import BUILD, DEMO, ROOT, SLUICE, SLUICED
from waiting import PATIENCE_S

VERSION = re.search(
    r"^project\(sluice VERSION (\d+\.\d+\.\d+)\b", (ROOT / "CMakeLists.txt").read_text(), re.M
).group(1)


TOOLS = [
    BUILD / "loadtest" / "load" / "sluice-load",
    BUILD / "loadtest" / "simulate" / "sluice-simulate",
    BUILD / "loadtest" / "size" / "sluice-size",
    BUILD / "loadtest" / "scale" / "sluice-scale",
    BUILD / "loadtest" / "bench" / "daemon" / "sluice-bench",
]


@pytest.mark.parametrize("program", [SLUICED, SLUICE, *TOOLS], ids=lambda program: program.name)
def test_programs_print_the_version(program):
    run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0 and run.stdout == f"{program.name} {VERSION}\n"


def test_the_benchmark_finds_the_daemon_of_its_build_and_itself():
    program = TOOLS[-1]
    run = subprocess.run(
        [program.name, "edge", "--model", DEMO, "--rounds", "1", "--seconds", "0.05"],
        capture_output=True, text=True, timeout=PATIENCE_S,
        env=os.environ | {"PATH": str(program.parent)})
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)


def test_the_image_is_labelled_with_the_version():
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.findall(r"^ARG VERSION=(.*)$", dockerfile, re.M) == [VERSION]
    assert 'org.opencontainers.image.version="${VERSION}"' in dockerfile


def test_the_manifests_and_pages_name_images_of_this_version():
    """Images of Sluice have the tag VERSION, or VERSION-cuda for GPUs."""
    tags = {}
    for path in [
        *(ROOT / "deploy").rglob("*"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
        ROOT / "Dockerfile",
    ]:
        if path.suffix in (".yaml", ".yml", ".md", ".service", "") and path.is_file():
            # Images of a user's models have tags of their own.
            found = re.findall(r"sluice[a-z-]*\n\s*newTag: *(\S+)|\bsluice:(\d[\w.-]*)",
                               path.read_text())
            if found:
                tags[str(path.relative_to(ROOT))] = {one or other for one, other in found}
    assert len(tags) >= 3, "two overlays and a runtime have image tags"
    for path, named in tags.items():
        assert named <= {VERSION, f"{VERSION}-cuda"}, path


def test_the_changelog_begins_with_unreleased_changes_then_the_version():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(
        rf"\[{re.escape(VERSION)}\] - \d{{4}}-\d{{2}}-\d{{2}}", headings[1]
    ), headings[1]


@pytest.mark.parametrize("program", TOOLS, ids=lambda program: program.name)
def test_wrong_arguments_end_with_status_2(program):
    for arguments in (["--no-such-flag"], ["--out"]):
        run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
        assert run.returncode == 2, run.stderr
        assert run.stderr
