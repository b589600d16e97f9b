"""Tests that programs and pages write option names as in the configuration file."""

import re

import pytest
import yaml

from conftest import ROOT

SOURCES = sorted(
    path
    for folder in ("base", "cascades", "client", "config", "engine", "loadtest", "server", "verify")
    for path in (ROOT / folder).glob("**/*")
    if path.suffix in (".cc", ".h") and path.name != "old_options.cc"  # old names
)
PAGES = {*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *(ROOT / "deploy").glob("**/*.md")}
PAGES -= {ROOT / "CHANGELOG.md"}  # it also names options of earlier releases
OPERATORS_PAGES = ("operations", "admission", "failures", "security", "memory", "grpc", "tutorial")
# No page of options has these; tests and fault injection set them.
FOR_TESTS = {"cpu.poison", "cuda.poison", "engine.watchdog.grace", "server.secrets.poll_interval"}
OPTIONS = FOR_TESTS | set(
    re.findall(r"^\| `([\w.]+)`", (ROOT / "docs" / "options.md").read_text(), re.M))
SECTIONS = {
    name.rsplit(".", depth)[0] for name in OPTIONS for depth in range(1, name.count(".") + 1)
}
ROOTS = {name.split(".")[0] for name in SECTIONS}
# Names without their first part or parts that still contain a dot.
SHORTENED = {
    name.split(".", depth)[-1] for name in OPTIONS for depth in range(1, name.count("."))
}

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|^#include[^\n]*|'(?:[^'\\\n]|\\.)+'"
    r'|R"(\w*)\(.*?\)\1"|(?P<texts>"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*)',
    re.M | re.S,
)


def texts(source):
    """Yields the string literals of a C++ source; adjacent literals are joined."""
    for found in TOKEN.finditer(source):
        if found["texts"]:
            yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found["texts"]))


def faults(text):
    """Returns the names in a text that are not options, or that lack their first part."""
    names = re.findall(rf"(?<![\w./-])(?:{'|'.join(ROOTS)})\.[\w.]*", text)
    wrong = {name for name in names if name.rstrip(".") not in OPTIONS | SECTIONS}
    for name in re.findall(r"(?<![\w./])[a-z_]+\.[a-z_.]*", text):
        # A text that is only a path is a look-up among the options of one struct.
        if name.rstrip(".") in SHORTENED and name != text:
            wrong.add(name)
    return wrong


def test_wrong_option_names_are_found():
    for text in ("queue.max_requests of 3", "see review.min_gain",
                 "engine.queue.most of 3", "engine.nothing"):
        assert faults(text), text
    for text in ("engine.queue.max_requests of 3", "review.min_gain",
                 "bound the queue (engine.queue).", "the queue. It is full", "read queue.h"):
        assert not faults(text), text


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in SOURCES}))
def test_texts_of_programs_name_options_in_full(folder):
    named = 0
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] != folder:
            continue
        for text in texts(path.read_text()):
            assert not faults(text), f"{path.relative_to(ROOT)}: {faults(text)} in {text!r}"
            named += any(name in text for name in OPTIONS)
    assert named > 10 or folder not in ("config", "engine", "server")


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_name_options_in_full(page):
    for name in re.findall(r"`([\w.]+)(?::[^`]*|=[^`]*)?`", page.read_text()):
        assert not faults(name) and name not in SHORTENED, name


def basic_options():
    page = (ROOT / "docs" / "options.md").read_text()
    return set(re.findall(r"^\| `([\w.]+)`", page.split("\n## Advanced options\n")[0], re.M))


def paths(tree, prefix=""):
    """Yields the paths of the values of a configuration."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def options_set_in(path):
    """Yields the options that a file of deploy/ or an operator's page sets."""
    text = path.read_text()
    if path.suffix in (".yaml", ".yml"):
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError:  # a template of Helm
            documents = []
        for document in documents:
            tree = document.get("config", document) if isinstance(document, dict) else {}
            yield from (name for name in paths(tree) if name in OPTIONS)
    variables = {f"SLUICE_{name.replace('.', '_').upper()}": name for name in OPTIONS}
    yield from (variables[name] for name in re.findall(r"SLUICE_[A-Z_]+", text)
                if name in variables)
    flags = re.findall(r"--([a-z]+(?:[.-][a-z]+)+)", text)
    yield from (name for name in (flag.replace("-", "_") for flag in flags) if name in OPTIONS)
    yield from (name for name in re.findall(r"`([\w.]+): [^`]+`", text) if name in OPTIONS)


def test_options_that_operators_set_are_basic():
    operators = [*(ROOT / "deploy").glob("**/*.yaml"), *(ROOT / "deploy").glob("**/*.service"),
                 ROOT / "deploy" / "README.md", ROOT / "README.md",
                 *(ROOT / "docs" / f"{page}.md" for page in OPERATORS_PAGES)]
    known = {path: set(options_set_in(path)) for path in operators}
    assert len(set().union(*known.values())) > 10
    for path, names in known.items():
        assert names <= basic_options(), (path, names - basic_options())
