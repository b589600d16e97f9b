"""Tests that each documented command is run or checked, or is listed as an exception.

test_documentation.py runs the commands of `sluice` and the HTTP commands.
"""

import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, SLUICED, Daemon
from waiting import PATIENCE_S

# Commands that no test runs, by their first words, with the reason.
EXCEPTIONS = {
    "./run": "builds everything",
    "./test": "runs this test",
    "apt install": "changes the machine",
    "build/cuda/": "needs a build with nvcc and a GPU",
    "build/peers/": "needs other servers",
    "build/venv/bin/python -m pytest": "is a long run of tests in ./test",
    "build/venv/bin/python loadtest/soak.py": "takes 20 minutes; its verdict has tests",
    "cp -r deploy": "is a step of the deployment that tests/deploy renders",
    "deploy/package.sh": "takes a minute; tests/thorough/test_packages.py installs its packages",
    "docker run": "needs the image, which tests/deploy checks",
    "for work in": "measures other servers for hours",
    "grpcurl": "is not installed; test_reflection.py makes these calls",
    "helm": "needs a cluster; tests/deploy/test_helm.py renders the chart",
    "kubectl": "needs a cluster; tests/deploy renders the manifests",
    "loadtest/gpu_check.sh": "needs a GPU; test_gpu_rehearsal.py rehearses it",
    "pip download": "downloads the source of another server",
    "python evaluate.py": "needs PyTorch",
    "python tools/save_golden.py": "needs PyTorch; test_verify.py tests with goldens that it wrote",
    "sluice-pull": "needs the hub; tests/thorough pulls a model from a hub on loopback",
    "python -m sluice_client.pair_frame": "needs a reranker; test_pair_frame.py runs it",
    "python tools/convert": "needs a checkpoint; test_convert.py converts them",
    "python3 -m venv": "makes a folder for other servers",
    "tools/arm64_root.sh": "downloads packages; ./test runs it",
    "tools/plant.py": "builds and runs the tests of 300 faults for hours",
    "tests/fuzz/run.sh": "needs libFuzzer and hours; ./test runs mutated seeds",
}
# Examples that need other models: test_documentation.py runs them.
OTHER_EXAMPLES = ("python examples/entities.py", "python examples/search.py")
RUN_ELSEWHERE = ("sluice ", "curl ", "sluice-gateway ")
TOOLS = {
    "sluice-bench": "loadtest/bench/daemon/sluice-bench",
    "sluice-load": "loadtest/load/sluice-load",
    "sluice-scale": "loadtest/scale/sluice-scale",
    "sluice-simulate": "loadtest/simulate/sluice-simulate",
    "sluice-size": "loadtest/size/sluice-size",
}
STARTS = re.compile(
    r"(sluiced?|sluice-\w+|curl|pip|python3?|\./\w+|(tools|loadtest|build|tests|deploy)/\S+|kubectl"
    r"|helm|docker|cmake|grpcurl|apt|cp|for \w+ in)\s"
)


def commands():
    """Yields (page, command) for each command in a code block without a language."""
    for page in sorted(ROOT.glob("**/*.md")):
        if {"build", "node_modules"} & set(page.relative_to(ROOT).parts):
            continue
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S):
            if language or not STARTS.match(block.removeprefix("$ ")):
                continue  # program output, a configuration or a formula
            for line in block.replace("\\\n", " ").splitlines():
                line = line.removeprefix("$ ")
                if STARTS.match(line + " "):
                    yield page, line


COMMANDS = list(commands())


def of(*starts):
    return [line for _, line in COMMANDS if line.startswith(starts)]


def words_of(command):
    words = shlex.split(command.partition(" > ")[0], comments=True)
    return [word for word in words if word not in ("&", "...")]


def run(words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=PATIENCE_S, **options)


def test_each_command_has_a_test_or_a_reason():
    checked = (*RUN_ELSEWHERE, "sluiced ", "pip install", "cmake ", "python examples/",
               "python models/recommender/diversity.py",
               "build/release/", "build/venv/bin/python loadtest/", "loadtest/",
               *(f"{tool} " for tool in TOOLS))
    exceptions = tuple(EXCEPTIONS)
    unknown = [f"{page.name}: {line}" for page, line in COMMANDS
               if not line.startswith(checked) and not line.startswith(exceptions)]
    assert not unknown
    assert len(COMMANDS) > 90
    for start in exceptions:
        assert of(start), f"no command begins with {start}"


@pytest.mark.parametrize("command", of("sluiced "))
def test_documented_daemons_would_start(tmp_path, command):
    shutil.copytree(ROOT / "models", tmp_path / "models")
    shutil.copytree(ROOT / "tests" / "goldens" / "verify", tmp_path / "models" / "mine")
    shutil.copytree(ROOT / "models" / "demo", tmp_path / "DIR")
    sentences = pathlib.Path("tests", "goldens", "sentences")
    shutil.copytree(ROOT / sentences, tmp_path / sentences)
    page = (ROOT / "docs" / "options.md").read_text()
    example = re.search(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "sluice.yaml").write_text(example[1])
    # Dots stand for options that are not relevant to the page.
    more = ["--model", "demo=models/demo"] if command.endswith(" ...") else []
    checked = run([SLUICED, *words_of(command)[1:], *more, "--check"], cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def flags_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


@functools.cache
def help_of(program, *subcommand):
    words = [BUILD / program, *subcommand]
    if subcommand == ("serve",):  # a program of the wheel, which `sluice` starts
        words = [sys.executable, "-c", "import sluice_client.serve as s; s.main()"]
    printed = run([*words, "--help"])
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


def test_commands_within_sentences_exist():
    """Checks the subcommand and the flags of commands in single backquotes."""
    programs = TOOLS | {"sluice": "client/sluice"}
    wrong, seen = [], 0
    for page in sorted(ROOT.glob("**/*.md")):
        if {"build", "node_modules"} & set(page.relative_to(ROOT).parts):
            continue
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        for program, subcommand, rest in re.findall(
                r"`(sluice(?:-\w+)?)\s([a-z]\w*)([^`]*)`", text):
            if program not in programs:
                continue
            seen += 1
            names = re.findall(r"^  (\w+)\s", help_of(programs[program]), re.M)
            own = rest.partition(" -- ")[0]  # the daemon's options follow
            if subcommand not in names or flags_in(own) - flags_in(
                    help_of(programs[program], subcommand)):
                wrong.append(f"{page.name}: {program} {subcommand}{rest}")
    assert not wrong and seen > 50


@pytest.mark.parametrize("command", of(*(f"{tool} " for tool in TOOLS), "build/release/"))
def test_flags_of_documented_tools_exist(command):
    name, *words = words_of(command)
    program = BUILD / TOOLS.get(name, pathlib.PurePath(name).relative_to("build/release")
                                if name.startswith("build/") else "")
    sub = [word for word in words[:1] if not word.startswith("-")]
    printed = run([program, *sub, "--help"])
    assert printed.returncode == 0, printed.stderr
    missing = flags_in(" ".join(words)) - flags_in(printed.stdout)
    assert not missing, missing


@pytest.mark.parametrize(
    "command", [line for line in of("loadtest/", "build/venv/bin/python loadtest/")
                if not line.startswith(tuple(EXCEPTIONS))])
def test_flags_of_documented_scripts_exist(command):
    words = words_of(command)
    script = next(word for word in words if word.startswith("loadtest/"))
    printed = run([sys.executable, ROOT / script, "--help"])
    assert printed.returncode == 0, printed.stderr
    missing = flags_in(" ".join(words)) - flags_in(printed.stdout)
    assert not missing, missing


@pytest.mark.parametrize("command", sorted(set(of("pip install"))))
def test_documented_packages_exist(command):
    """PyPI packages are not installed here. For a folder, the named extras must exist."""
    for word in words_of(command)[2:]:
        folder, _, extras = word.partition("[")
        if folder.startswith("."):
            project = (ROOT / folder / "pyproject.toml").read_text()
            for extra in filter(None, extras.removesuffix("]").split(",")):
                assert re.search(rf"^{extra} = \[", project, re.M), extra


@pytest.mark.parametrize("command", sorted(set(of("cmake "))))
def test_documented_build_targets_exist(command):
    lists = "".join(path.read_text() for path in ROOT.glob("**/CMakeLists.txt")
                    if "build" not in path.relative_to(ROOT).parts)
    presets = (ROOT / "CMakePresets.json").read_text()
    for part in command.split("&&"):
        words = words_of(part)
        if "--preset" in words:
            assert f'"name": "{words[words.index("--preset") + 1]}"' in presets
        for target in words[words.index("--target") + 1:] if "--target" in words else ():
            assert re.search(rf"[(\s]{target}[\s)]", lists), target


@pytest.fixture(scope="module")
def server():
    models = [(name, ROOT / "models" / name) for name in ("demo", "recommender")]
    with Daemon(models=models) as daemon:
        yield daemon.grpc


def examples():
    """Yields the commands of pages and of the examples themselves."""
    yield from of("python examples/", "python models/recommender/diversity.py")
    for example in sorted((ROOT / "examples").glob("*.py")):
        found = re.findall(r"^  (python examples/.*)$", example.read_text(), re.M)
        assert found, f"{example.name} shows no command"
        yield from found


@pytest.mark.parametrize(
    "command", sorted({line for line in examples() if not line.startswith(OTHER_EXAMPLES)}))
def test_documented_examples_run(server, command, tmp_path):
    for each in ROOT.iterdir():
        (tmp_path / each.name).symlink_to(each)
    words = words_of(command.replace("localhost:8001", server))
    result = run([sys.executable, *words[1:]], cwd=tmp_path, env=os.environ)
    assert result.returncode == 0 and result.stdout, result.stdout + result.stderr
