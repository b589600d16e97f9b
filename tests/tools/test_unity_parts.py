"""Tests which sources the unity build compiles together."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import unity_parts  # noqa: E402
from unity_parts import Source, parts_of  # noqa: E402


def source(folder, name, text):
    path = folder / name
    path.write_text(text)
    return Source(path)


DECLARATIONS = {
    "a function": "int Count(int rows) { return rows; }",
    "a function whose line is broken": "std::vector<std::string>\nCount(\n    int rows) {\n}",
    "a constant": "constexpr int Count = 3;",
    "an array": "constexpr int Count[] = {1, 2};",
    "a variable with braces": "const int Count{3};",
    "a struct": "struct Count {\n  int rows;\n};",
    "a final class with a base": "class Count final : public Base {\n};",
    "an enum": "enum class Count { kOne, kTwo };",
    "an alias": "using Count = std::vector<int>;",
    "a matcher": 'MATCHER_P(Count, rows, "") { return arg == rows; }',
}


@pytest.mark.parametrize("declaration", DECLARATIONS.values(), ids=DECLARATIONS)
def test_a_declared_name_keeps_a_source_from_sources_that_use_the_name(tmp_path, declaration):
    declares = source(
        tmp_path, "a.cc",
        f"namespace sluice {{\nnamespace {{\n\nvoid Run() {{\n  Stop();\n}}\n\n{declaration}\n\n"
        "}  // namespace\n\nvoid Rest() {\n}\n\n}  // namespace sluice\n")
    uses = source(tmp_path, "b.cc", "int Use() { return Count(2); }\n")
    other = source(tmp_path, "c.cc", "// Count\nint Other() { return Log(\"Count\"); }\n")
    assert declares.declared == {"Count", "Run"}
    one, two, three = parts_of([declares, uses, other], 10_000)
    assert one != two
    assert three in (one, two)


HARMLESS = {
    "a using-declaration": "using ::testing::Count;",
    "an alias of the same name": "using Count = kernels::Count;",
    "a test": "TEST(Suite, Count) {\n}",
    "a local name": "void F() {\n  int Count = 3;\n}",
}


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_sources_may_repeat_text_without_new_declarations(tmp_path, text):
    declares = source(tmp_path, "a.cc", f"namespace {{\n{text}\n}}  // namespace\n")
    assert "Count" not in declares.declared


# The content of a source, and the content of another source that must be kept apart from it.
APART = {
    "a type outside an unnamed namespace": ("struct Count {\n};\n", "struct Count {\n};\n"),
    "a lowercase import and a variable": ("using std::chrono::seconds;\n", "int seconds = 3;\n"),
    "a function and an import": (
        "namespace {\nint Count() {\n}\n}  // namespace\n", "using kernels::Count;\n"),
    "a function and a header's function": (
        "namespace {\nbool IsFinite(float x) {\n}\n}  // namespace\n",
        '#include "tests/tools/unity_parts_test.h"\n'),
    "an import from a library and a header's type": (
        "using google::protobuf::Shape;\n", '#include "tests/tools/unity_parts_test.h"\n'),
    "sluice::testing and testing": (
        "namespace sluice::testing {\n}\n", "using X = testing::HasSubstr;\n"),
}


@pytest.mark.parametrize("one, other", APART.values(), ids=APART)
def test_conflicting_sources_are_kept_apart(tmp_path, monkeypatch, one, other):
    header = tmp_path / "tests" / "tools" / "unity_parts_test.h"
    header.parent.mkdir(parents=True)
    header.write_text("bool IsFinite(float x);\nstruct Shape {\n};\n")
    monkeypatch.setattr(unity_parts, "ROOT", tmp_path)
    sources = [source(tmp_path, "a.cc", one), source(tmp_path, "b.cc", other)]
    assert parts_of(sources, 10_000) == [0, 1] or parts_of(sources, 10_000) == [1, 0]


A_FUNCTION = "namespace {\nint Count() {\n}\n}  // namespace\n"
TOGETHER = {
    "qualified names": (A_FUNCTION, "int x = other::Count();\n"),
    "members": (A_FUNCTION, "int x = object.Count();\n"),
    "the same import": ("using std::chrono::seconds;\n", "using std::chrono::seconds;\n"),
}


@pytest.mark.parametrize("one, other", TOGETHER.values(), ids=TOGETHER)
def test_sources_without_conflicts_are_compiled_together(tmp_path, one, other):
    sources = [source(tmp_path, "a.cc", one), source(tmp_path, "b.cc", other)]
    assert parts_of(sources, 10_000) == [0, 0]


def test_parts_have_about_the_given_size_and_the_order_of_the_sources_does_not_matter(tmp_path):
    sources = [source(tmp_path, f"{i}.cc", "x" * (100 + i)) for i in range(10)]
    parts = parts_of(sources, 220)
    sizes = [sum(s.size for s, p in zip(sources, parts, strict=True) if p == part)
             for part in set(parts)]
    assert len(sizes) == 5 and max(sizes) - min(sizes) < 10
    assert parts_of(sources[::-1], 220) == parts[::-1]


def test_every_source_of_the_project_has_a_part():
    root = pathlib.Path(__file__).resolve().parents[2]
    sources = [Source(path) for path in sorted((root / "engine").rglob("*.cc"))]
    parts = parts_of(sources, 120_000)
    for one, first in zip(sources, parts, strict=True):
        for other, second in zip(sources, parts, strict=True):
            assert one is other or first != second or not one.conflicts(other)
