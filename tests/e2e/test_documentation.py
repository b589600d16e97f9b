"""Tests that generated pages are current, links point to files, and examples and commands run."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, SLUICE, SLUICED, Daemon, free_port
from gateway import Gateway
from instruction_sets import needs, stated_need
from sentence_models import EXPECTED, SENTENCES, lay
from waiting import PATIENCE_S

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
INTERNALS = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]
# Pages that begin with a table.
LISTS = ("dependencies.md", "gpu_costs.md", "why.md")


def name_of(page):
    return str(page.relative_to(ROOT))


def test_generated_tables_and_printed_output_match_the_code():
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_docs.py", "--check", "--sluice", SLUICE,
         "--sluiced", SLUICED],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    names = re.findall(r'"(sluice_\w+)"', (ROOT / "proto" / "metric_names.h").read_text())
    assert len(names) > 50
    for name in names:
        assert f"`{name}`" in metrics


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in LISTS], ids=name_of)
def test_a_page_begins_with_an_example(page):
    """The first 25 lines contain a code block or a formula."""
    first = page.read_text().splitlines()[:25]
    assert any(re.match(r"```| {4}\S", line) for line in first)


def anchors(page):
    """Returns the anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)", text, re.M)}


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *INTERNALS, *ROOT.glob("*.md")}), ids=name_of)
def test_links_lead_to_files_and_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        if "://" in target:
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def test_the_index_leads_to_every_page():
    text = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in text, page.name


@pytest.mark.parametrize("page", INTERNALS, ids=name_of)
def test_paths_in_a_page_about_the_code_exist(page):
    """Checks each path in backticks that begins with a folder of the repository."""
    paths = re.findall(r"`(\w+/[\w./-]*)`", page.read_text())
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path


def test_architecture_has_at_most_300_lines():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 300


def test_filters_in_contributing_md_match_tests_and_benchmarks():
    commands = re.findall(
        r"`build/(?:dev|release)/(\S+) --(gtest|benchmark)_filter=(\S+)`",
        (ROOT / "CONTRIBUTING.md").read_text(),
    )
    assert len(commands) >= 3
    for program, kind, pattern in commands:
        listed = subprocess.run(
            [
                BUILD / program,
                f"--{kind}_filter={shlex.split(pattern)[0]}",
                f"--{kind}_list_tests",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        names = re.findall(r"^  \w" if kind == "gtest" else r"^\w+/", listed.stdout, re.M)
        assert listed.returncode == 0 and names, (program, pattern)


def test_tests_named_in_faults_md_exist():
    file, names = None, 0
    for line in (ROOT / "tests" / "faults.md").read_text().splitlines():
        if found := re.match(r"- `([^`]+)`$", line):
            file = ROOT / found.group(1)
            assert file.exists(), line
        elif found := re.match(r"  - `(\w+)", line):
            assert f"def {found.group(1)}(" in file.read_text(), line
            names += 1
    assert names > 40


def test_tests_named_in_the_attack_table_exist():
    """Each of the 30 rows names existing tests, fixtures or fuzz targets."""
    written = "".join(
        path.read_text()
        for kind in ("*.cc", "*.py", "CMakeLists.txt")
        for path in (ROOT / "tests").rglob(kind)
    )
    known = set(re.findall(r"\w+", written)) | {
        f"fuzz_{path.name.removesuffix('_fuzz.cc')}" for path in (ROOT / "tests/fuzz").glob("*.cc")
    }
    table = (ROOT / "tests" / "faults.md").read_text().split("# Findings of an external attack")
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", table[1], re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 31))
    for number, tests in rows:
        names = re.findall(r"`(\w+)`", tests)
        assert names and known.issuperset(names), (number, tests)


def test_the_names_in_from_other_servers_md_exist():
    """Each name in backticks in the last column of a table is part of the API or an option."""
    pages = ("api.md", "options.md", "http.md", "python.md")
    known = "".join((ROOT / "docs" / page).read_text() for page in pages)
    rows = [
        line.split("|")
        for line in (ROOT / "docs" / "from_other_servers.md").read_text().splitlines()
        if line.startswith("| ") and "|---" not in line
    ]
    names = [name.split("=")[0] for row in rows for name in re.findall(r"`([^`]+)`", row[-2])]
    assert len(names) > 110
    for name in names:
        assert f"`{name}`" in known or name in (
            "ModelStreamInfer",
            "ModelInfer",
            "engine.queue",
            "embed",
            "packed",
            "--model NAME",
            "sluice load",
            "sluice unload",
            "/v2/models/NAME/infer",
        ), name


def commands():
    """Yields (page, words, need) for each `sluice` command line in a code block of a page. The need
    is the instruction set stated at the end of the line, or None.
    """
    for page in sorted(ROOT.glob("**/*.md")):
        if {"build", "node_modules"} & set(page.relative_to(ROOT).parts):
            continue
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                line = line.removeprefix("$ ")
                if re.match(r"sluice\s", line):
                    yield page, shlex.split(
                        line.replace("[", "").replace("]", "") if " [-" in line else line,
                        comments=True,
                    ), stated_need(line)


COMMANDS = list(commands())
NEED_NO_SERVER = ("completion", "einsum", "fit", "plan", "quantize", "verify")


@pytest.fixture
def files(tmp_path):
    """The folder in which documented commands run, with the files that they name."""
    for name in ("docs", "models"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mine", "mine-int8"):
        shutil.copytree(ROOT / "tests" / "goldens" / "verify", tmp_path / "models" / name)
    shutil.copy(tmp_path / "models" / "mine" / "golden.npz", tmp_path)
    (tmp_path / "requests.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "texts.txt").write_text("1 2 3\n4 5\n")  # token ids; it has no tokenizer
    for name in ("FILE", "lengths.txt"):
        (tmp_path / name).write_text("5\n7\n100\n")
    (tmp_path / "trace.csv").write_text("TIMESTAMP,ContextTokens\n0,5\n1,7\n")
    (tmp_path / "arrivals.csv").write_text(
        "arrival_s,input_tokens\n" + "".join(f"{at / 100},{5 + at % 90}\n" for at in range(200)))
    (tmp_path / "journal.jsonl").write_text(journal(arrivals=200))
    return tmp_path


def journal(arrivals):
    """Returns the journal of a daemon that served `arrivals` sequences."""
    recorded = (ROOT / "tests" / "fuzz" / "corpus" / "journal" / "seed_run").read_text()
    start, ladder, push = recorded.splitlines()[:3]
    pushes = [
        json.dumps(json.loads(push) | {"ticket": at, "queued": 10**9 + at * 10**6,
                                       "tokens": 5 + at % 90, "steps": 1, "pages": 6})
        for at in range(1, arrivals + 1)
    ]
    return "\n".join([start, ladder, *pushes]) + "\n"


def test_the_pages_show_every_command_of_the_client():
    help_text = subprocess.run(
        [SLUICE, "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = set(re.findall(r"^  ([a-z]+) ", help_text.partition("Subcommands:")[2], re.M))
    assert len(known) > 10 and known == {words[1] for _, words, _ in COMMANDS}


@pytest.mark.parametrize("words", [
    pytest.param(words, marks=[needs(need)] if need else [], id=f"{page.name}: {' '.join(words)}")
    for page, words, need in COMMANDS if words[1] != "serve"  # tests/e2e/test_serve.py runs it
])
def test_documented_commands_are_accepted(files, words):
    """A command exits with 3 if no server answers, or 0 if it needs none; 2 means bad arguments."""
    nowhere = f"127.0.0.1:{free_port()}"
    if words[1] == "quantize":  # needs a Hugging Face model and a new output folder
        for name in ("mine", "mine-int8"):
            shutil.rmtree(files / "models" / name)
        shutil.copytree(ROOT / "tests" / "goldens" / "families" / "llama_1",
                        files / "models" / "mine")
    run = subprocess.run(
        [SLUICE, *words[1:]],
        cwd=files,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "SLUICE_SERVER": nowhere, "SLUICE_ADMIN": nowhere},
    )
    needs_no_server = words[1] in NEED_NO_SERVER and "--model" not in words
    assert run.returncode == (0 if needs_no_server else 3), run.stdout + run.stderr


def converted(folder):
    """Converts a golden model of the package gliner."""
    source = ROOT / "tests" / "goldens" / "extraction" / "bert"
    subprocess.run([sys.executable, ROOT / "tools" / "convert", source, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Daemon(
        models=[
            ("demo", ROOT / "models" / "demo"),
            ("recommender", ROOT / "models" / "recommender"),
            ("encoder", lay(tmp_path_factory.mktemp("encoder") / "mean", "mean")),
            *((name, SENTENCES / name) for name in ("cross_1", "tokens")),
            ("reranker", SENTENCES / "cross_1"),  # docs/tutorial.md
            ("m3", ROOT / "tests" / "goldens" / "retrieval" / "m3"),  # docs/http.md
            ("gliner", converted(tmp_path_factory.mktemp("gliner") / "model")),  # docs/http.md
        ]
    ) as daemon:
        yield daemon.grpc


def run(name, *arguments):
    result = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_the_score_example_prefers_likely_text(server):
    lines = run("score.py", server, "demo", "In the beginning God created", "xq zzv qqk jjx")
    good, bad = (float(line.split()[0]) for line in lines)
    assert bad < good < 0


def test_the_embed_example_prints_cosines(server):
    lines = run("embed.py", server, "demo", "And God said", "And God said", "Jerusalem")
    cosines = [float(line.split()[0]) for line in lines]
    assert cosines[0] == cosines[1] == pytest.approx(1, abs=1e-3) and cosines[2] < 0.999


def test_the_recommend_example_prints_ten_new_items(server):
    lines = run("recommend.py", server, "recommender", "5", "80", "8", "83", "11")
    items, scores = zip(*(map(float, line.split()) for line in lines))
    assert len(items) == 10 and not {0, 5, 80, 8, 83, 11} & set(items)
    assert list(scores) == sorted(scores, reverse=True)


def test_the_search_example_finds_lines_and_puts_them_in_order(server, tmp_path):
    texts = [text.replace("\n", " ").strip() or "-" for text in EXPECTED["texts"]]
    lines = [*texts, "", *(f"{text} again" for text in texts)]
    (tmp_path / "notes.txt").write_text("\n".join(lines))
    for models in (["encoder"], ["encoder", "cross_1"]):
        model, *reranker = models
        printed = run("search.py", server, model, tmp_path / "notes.txt", texts[0], *reranker)
        scores = [float(line.split()[0]) for line in printed]
        assert len(printed) == 10 and scores == sorted(scores, reverse=True)
        for line in printed:
            number, text = line.split(maxsplit=1)[1].split(": ", 1)
            assert lines[int(number) - 1] == text
        if not reranker:
            assert printed[0].endswith(f"1: {texts[0]}") and scores[0] == pytest.approx(1, abs=1e-3)


def test_the_entities_example_prints_parts_of_texts(server):
    text = " ".join(EXPECTED["texts"][:4])  # longer than the model's longest row
    first, *entities = run("entities.py", server, "tokens", text)
    assert first == text and entities
    for line in entities:
        kind, score, place, entity = line.split(maxsplit=3)
        begin, end = map(int, place.split("-"))
        assert kind in ("PER", "LOC") and 0 < float(score) <= 1 and text[begin:end] == entity


def test_the_stream_example_prints_generated_text(server):
    lines = run("stream.py", server, "demo", "In the beginning", "40")
    assert len("\n".join(lines)) >= 30


def blocks(page, language):
    """Returns a page's code blocks in `language`."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    return [block for marked, block in found if marked == language]


@pytest.fixture(scope="module")
def gateway(server):
    template = ROOT / "examples" / "chat.jinja"
    with Gateway(server, "--chat", f"demo={template}", "--tokenizer",
                 f"demo={ROOT / 'models' / 'demo'}") as started:
        yield started


PROGRAMS = [
    (page, number)
    for page in ("README.md", "clients/python/README.md", "docs/api.md", "docs/generation.md",
                 "docs/http.md", "docs/python.md", "docs/tutorial.md")
    for number in range(len(blocks(page, "python")))
]


@pytest.mark.parametrize("page, number", PROGRAMS)
def test_the_programs_in_pages_run(server, gateway, page, number):
    program = blocks(page, "python")[number]
    addresses = {"localhost:8001": server, "localhost:8000": gateway.address}
    assert any(each in program for each in addresses)
    for named, real in addresses.items():
        program = program.replace(named, real)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            timeout=PATIENCE_S)
    assert result.returncode == 0 and not result.stderr, result.stdout + result.stderr
    assert result.stdout.strip() or "except" in program


def http_commands():
    """Yields the curl and gateway commands in pages."""
    for page in ("README.md", "docs/http.md", "docs/from_other_servers.md", "docs/tutorial.md"):
        for block in blocks(page, ""):
            yield from re.findall(r"^(?:curl|sluice-gateway) (?:\\\n|[^'\n]|'[^']*')*", block, re.M)


@pytest.mark.parametrize("command", list(http_commands()))
def test_the_commands_for_http_run(server, gateway, command):
    if command.startswith("sluice-gateway"):
        words = shlex.split(command.replace("\\\n", ""))[1:]
        options = dict(zip(words[::2], words[1::2]))
        assert options.pop("--daemon") == "localhost:8001"
        assert options.pop("--listen", "localhost:8000") == "localhost:8000"
        for each in {"--chat", "--tokenizer"} & options.keys():
            options[each] = options[each].replace("=", f"={ROOT}/")
        with Gateway(server, *(word for pair in options.items() for word in pair)) as started:
            assert started.get("/readyz").status == 200
        return
    words = shlex.split(command.replace("localhost:8000", gateway.address))
    result = subprocess.run([*words, "--silent", "--show-error", "--fail-with-body"],
                            capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(("}", "data: [DONE]\n\n"))


def test_every_limit_of_the_gateway_has_a_row_and_a_test():
    """The table in docs/http.md states who is refused when one peer fills a limit."""
    sys.path.insert(0, str(ROOT / "tools"))
    from gateway_bounds import BOUNDS
    from sluice_client.gateway import __main__ as gateway
    from sluice_client.gateway.hostile import Limits

    rows = {bound.name for bound in BOUNDS}
    options = {option for action in gateway.arguments()._actions
               for option in action.option_strings
               if re.match(r"--max-|--.*-timeout$|--daemon-connections", option)}
    assert options - rows == {"--drain-timeout"}
    fields = {field.name for field in dataclasses.fields(Limits)}
    named = {f"--{field.removesuffix('_s').replace('_', '-')}": field for field in fields}
    missing = {field for option, field in named.items() if not {option, field} & rows}
    assert missing == {"timeout_s"}  # a default, not a limit
    folder = ROOT / "clients" / "python" / "sluice_client" / "gateway"
    source = "".join(file.read_text() for file in folder.glob("*.py"))
    constants = set(re.findall(r"^(_?MAX_\w+|_MEMORY_BYTES)\b", source, re.M))
    # Peers do not share these.
    of_one_text = {"_MAX_REQUEST_ID_BYTES", "_MAX_TRACESTATE_BYTES", "_MAX_NAME_BYTES",
                   "_MAX_PATH_BYTES", "_MAX_TOKEN_BYTES"}
    assert constants - rows <= {"_MAX_QUEUED"} | of_one_text, constants - rows
    tests = "".join(file.read_text() for file in (ROOT / "tests/e2e").glob("test_gateway*.py"))
    for bound in BOUNDS:
        assert f"def {bound.test}(" in tests, bound
    reasons = set(re.findall(r'reason="(\w+)"|refusals\.add\(\s*"(\w+)"', source))
    known = {each for pair in reasons for each in pair} - {""} | {
        "template", "head", "chunks", "connections", "malformed"}
    assert {bound.reason for bound in BOUNDS} - {""} <= known
    page = (ROOT / "docs" / "http.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", page, re.M)) & known == known


def test_the_page_of_the_gateway_names_its_options_and_defaults():
    help_text = subprocess.run([sys.executable, "-m", "sluice_client.gateway", "--help"],
                               capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  (--[a-z-]+)", help_text, re.M))
    page = (ROOT / "docs" / "http.md").read_text()
    named = set(re.findall(r"`(--[a-z-]+)", page))
    assert named <= known, named - known
    unnamed = {each for each in known if not re.search(rf"{each}\b", page)}
    assert unnamed <= {"--help", "--access-log"}, unnamed
