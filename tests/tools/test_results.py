"""Tests that committed results contain no local paths."""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "loadtest"))
import reporting  # noqa: E402

RESULTS = ROOT / "loadtest" / "results"
# An absolute path to a user's folder, a temporary file or a checkout.
OWN = re.compile(r"(?<![\w./~-])/(?:tmp|home|root|work|Users|var|mnt|srv|scratch)/[^\s\"'<>|,)]*")


def test_results_contain_no_local_path():
    found = {f"{path.relative_to(ROOT)}: {match[0]}"
             for path in sorted(RESULTS.rglob("*")) if path.is_file()
             for match in OWN.finditer(path.read_text(errors="replace"))}
    assert not found


def test_local_path_is_found():
    for text in ('"trace": "/mnt/a/trace.csv"', "=/Users/me/x", "from /var/a, ", "(/srv/b)"):
        assert OWN.search(text), text
    for text in ("sequences/srv/s", "build/var/x", "https://a.b/mnt/c", "tokens/s", "~/srv/x"):
        assert not OWN.search(text), text


def test_options_of_a_report_name_files_without_folders():
    options = argparse.Namespace(
        model=pathlib.Path("/srv/models/llama"), daemons=[pathlib.Path("a/sluiced")], rounds=3,
        label="A Llama", out=pathlib.Path("/srv/out.json"), table=None, scratch=1)
    assert reporting.options_of(options, "scratch") == {
        "model": "llama", "daemons": ["sluiced"], "rounds": 3, "label": "A Llama"}


def test_each_result_names_what_wrote_it():
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", (RESULTS / "README.md").read_text(), re.MULTILINE)
    listed = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted({each.name.partition(".")[0] for each in RESULTS.iterdir()
                                     if each.name != "README.md"})
    for _, writers in rows:
        for path in re.findall(r"`((?:loadtest|tools)/[^`]*)`", writers):
            assert (ROOT / path).is_file(), path
