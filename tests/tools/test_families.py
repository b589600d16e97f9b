"""Every family of models has goldens and a row in docs/models.md."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import make_docs  # noqa: E402

FOLDER = ROOT / "engine" / "model" / "families"
FAMILIES = make_docs.families()


def golden_architectures():
    return {
        architecture
        for config in (ROOT / "tests" / "goldens").glob("**/config.json")
        for architecture in json.loads(config.read_text()).get("architectures", [])
    }


@pytest.mark.parametrize("family", FAMILIES, ids=[family[0] for family in FAMILIES])
def test_each_family_has_goldens(family):
    title, by_output, _ = family
    names = {name for names in by_output.values() for name in names}
    assert names & golden_architectures(), (
        f"no golden in tests/goldens has an architecture of the family {title}: make goldens first "
        "(tests/goldens/make_transformers.py), then tests/goldens/bits.txt and the seeds of the "
        "fuzz targets; see CONTRIBUTING.md, Adding a family"
    )


def test_each_family_has_a_row_in_the_documents():
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "models.md").read_text(), re.MULTILINE)
    for title, _, _ in FAMILIES:
        assert title in rows, f"docs/models.md has no row of {title}: run tools/make_docs.py"


def test_each_family_that_is_defined_is_listed():
    defined = {
        name
        for path in FOLDER.glob("*.cc")
        for name in re.findall(r"^const ModelFamily k(\w+)Family = ", path.read_text(), re.M)
    }
    listed = re.findall(r"&k(\w+)Family", (FOLDER / "families.cc").read_text())
    absent = sorted(defined - set(listed))
    assert not absent, f"list {', '.join(absent)} in engine/model/families/families.cc"
    unknown = sorted(set(listed) - defined)
    assert not unknown, f"engine/model/families/*.cc do not define {', '.join(unknown)}"
    assert len(listed) == len(defined), "engine/model/families/families.cc lists a family twice"
