"""Pages that are made of the code's tables are, links lead somewhere, and the examples run."""

import re
import subprocess
import sys

import pytest

from conftest import ROOT, SLUICED, Daemon

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])


def test_tables_of_options_and_metrics_are_the_codes():
    result = subprocess.run([sys.executable, ROOT / "tools" / "make_docs.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    options = (ROOT / "docs" / "options.md").read_text()
    printed = subprocess.run([SLUICED, "--help"], capture_output=True, text=True, check=True).stdout
    flags = re.findall(r"^  --((?:engine|server|cpu|log)\.[\w.-]+)", printed, re.M)
    assert len(flags) > 50
    for flag in flags:
        assert f"`{flag.replace('-', '_')}`" in options
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    names = re.findall(r'"(sluice_\w+)"', (ROOT / "server" / "metric_names.h").read_text())
    assert len(names) > 50
    for name in names:
        assert f"`{name}`" in metrics


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_names_for_those_who_come_from_elsewhere_exist():
    """Of our column only: each name in backticks is one of the API or an option."""
    known = (ROOT / "docs" / "api.md").read_text() + (ROOT / "docs" / "options.md").read_text()
    rows = [line.split("|") for line in (ROOT / "docs" / "from_other_servers.md").read_text().splitlines()
            if line.startswith("| ") and "|---" not in line]
    names = [name.split("=")[0] for row in rows for name in re.findall(r"`([^`]+)`", row[3])]
    assert len(names) > 40
    for name in names:
        assert f"`{name}`" in known or name in ("ModelStreamInfer", "ModelInfer", "engine.queue"), name


@pytest.fixture(scope="module")
def server():
    daemon = Daemon(models=[("demo", ROOT / "models" / "demo"), ("recommender", ROOT / "models" / "recommender")])
    yield daemon.grpc
    daemon.stop()


def run(name, *arguments):
    result = subprocess.run([sys.executable, ROOT / "examples" / name, *arguments], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_score(server):
    lines = run("score.py", server, "demo", "In the beginning God created", "xq zzv qqk jjx")
    good, bad = (float(line.split()[0]) for line in lines)
    assert bad < good < 0


def test_embed(server):
    lines = run("embed.py", server, "demo", "And God said", "And God said", "Jerusalem")
    cosines = [float(line.split()[0]) for line in lines]
    assert cosines[0] == cosines[1] == pytest.approx(1, abs=1e-3) and cosines[2] < 0.999


def test_recommend(server):
    lines = run("recommend.py", server, "recommender", "5", "80", "8", "83", "11")
    items, scores = zip(*(map(float, line.split()) for line in lines))
    assert len(items) == 10 and not {0, 5, 80, 8, 83, 11} & set(items)
    assert list(scores) == sorted(scores, reverse=True)


def test_stream(server):
    lines = run("stream.py", server, "demo", "In the beginning", "40")
    assert len("\n".join(lines)) >= 30
