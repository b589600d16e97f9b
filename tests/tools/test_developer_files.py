"""Tests the files that set up a developer's machine, and the workflow that runs ./test.

| file | is checked against |
|---|---|
| .clangd | CLANGD below, which has the keys of clangd 14 that the file may use |
| .devcontainer/devcontainer.json | DEVCONTAINER below, a part of the published schema |
| .editorconfig | the library editorconfig (PyPI), which resolves the rules for a path |
| .github/workflows/test.yml | the schema in check-jsonschema (PyPI) |
| .pre-commit-config.yaml | pre-commit's own validator (PyPI) |
| CMakePresets.json | cmake's own reader, and the schema in its documentation (cmake-data) |

No package on PyPI or in Debian has schemas for dev containers and clangd. The tests never start the
dev container or the workflow.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import editorconfig
import jsonschema
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_lines  # noqa: E402
import check_tidy  # noqa: E402

WORKFLOW = ROOT / ".github" / "workflows" / "test.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
PRESETS = ROOT / "CMakePresets.json"


def _object(required=(), **properties):
    return {"type": "object", "required": list(required), "properties": properties,
            "additionalProperties": False}


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True}

# Follows devContainer.base.schema.json of containers.dev, plus the editor's properties.
DEVCONTAINER = _object(
    ("build",),
    name=_TEXT,
    build=_object(("dockerfile", "target"), dockerfile=_TEXT, context=_TEXT, target=_TEXT),
    remoteUser=_TEXT,
    containerEnv={"type": "object", "additionalProperties": {"type": "string"}},
    capAdd=_TEXTS,
    securityOpt=_TEXTS,
    postCreateCommand=_TEXT,
    customizations=_object(
        vscode=_object(extensions={"type": "array", "items": {"pattern": r"^[\w-]+\.[\w-]+$"}},
                       settings={"type": "object"})),
)

# Follows https://clangd.llvm.org/config.
CLANGD = _object(
    If=_object(PathMatch={"anyOf": [_TEXT, _TEXTS]}),
    CompileFlags=_object(CompilationDatabase=_TEXT, Remove=_TEXTS),
    Diagnostics=_object(Suppress={"anyOf": [_TEXT, _TEXTS]}),
)


def load_devcontainer():
    """Returns the fields of devcontainer.json; whole lines may be comments."""
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))


def load_clangd():
    return list(yaml.safe_load_all((ROOT / ".clangd").read_text()))


def load_presets(kind):
    """Returns the visible presets of a kind, such as "testPresets", by name."""
    return {preset["name"]: preset for preset in json.loads(PRESETS.read_text())[kind]
            if not preset.get("hidden")}


def run(*command, cwd=ROOT, **variables):
    """Runs a command; returns its status and output. `variables` are added to its environment."""
    return subprocess.run([str(word) for word in command], cwd=cwd, text=True,
                          env={**os.environ, **variables},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def validate_workflow(file):
    return run(sys.executable, "-m", "check_jsonschema", "--builtin-schema",
               "vendor.github-workflows", file)


def validate_hooks(file, folder):
    """Validates a hook configuration. pre-commit writes its state to `folder`."""
    return run(sys.executable, "-m", "pre_commit", "validate-config", file, PRE_COMMIT_HOME=folder)


def validate_presets(file):
    """Returns the errors of cmake and of its schema. cmake accepts some unknown keys."""
    result = run("cmake", "--list-presets=all", cwd=file.parent)
    faults = [result.stdout] if result.returncode else []
    (schema,) = pathlib.Path("/usr/share").glob("cmake-*/Help/manual/presets/schema.json")
    validator = jsonschema.Draft7Validator(json.loads(schema.read_text()))
    return faults + [error.message for error in validator.iter_errors(json.loads(file.read_text()))]


def plant(folder, file, old, new):
    """Returns a copy of a file in which one text is replaced."""
    text = file.read_text()
    assert text.count(old) >= 1, old
    copy = folder / file.name
    copy.write_text(text.replace(old, new, 1))
    return copy


# --- schemas


def test_workflow_is_valid():
    result = validate_workflow(WORKFLOW)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("old, new", [
    pytest.param("runs-on:", "run-on:", id="unknown_key_of_a_job"),
    pytest.param("- run:", "- runs:", id="unknown_key_of_a_step"),
    pytest.param("timeout-minutes: 90", "timeout-minutes: long", id="timeout_is_not_a_number"),
    pytest.param("contents: read", "contents: reads", id="unknown_permission"),
])
def test_fault_in_a_workflow_is_found(tmp_path, old, new):
    assert validate_workflow(plant(tmp_path, WORKFLOW, old, new)).returncode != 0


def test_hooks_are_valid(tmp_path):
    result = validate_hooks(HOOKS, str(tmp_path))
    assert (result.returncode, result.stdout) == (0, "")  # An unknown key is only a warning.


@pytest.mark.parametrize("old, new", [
    pytest.param("entry: ", "entries: ", id="hook_without_an_entry"),
    pytest.param("stages: [commit-msg]", "stages: [commit-message]", id="unknown_stage"),
    pytest.param("files: ^(", "files: ^((", id="invalid_pattern"),
    pytest.param("default_stages", "default_stage", id="unknown_key"),
])
def test_fault_in_hooks_is_found(tmp_path, old, new):
    result = validate_hooks(plant(tmp_path, HOOKS, old, new), str(tmp_path))
    assert (result.returncode, result.stdout) != (0, "")


def test_presets_are_valid():
    assert validate_presets(PRESETS) == []
    result = run("cmake", "--list-presets=all")
    for kind in ("configurePresets", "buildPresets", "testPresets"):
        for name in load_presets(kind):
            assert f'"{name}"' in result.stdout


@pytest.mark.parametrize("old, new", [
    pytest.param('"jobs": 2', '"job": 2', id="unknown_key"),
    pytest.param('"inherits": "base"', '"inherits": "bas"', id="unknown_parent"),
    pytest.param('"noTestsAction": "error"', '"noTestsAction": "fail"', id="unknown_value"),
])
def test_fault_in_presets_is_found(tmp_path, old, new):
    assert validate_presets(plant(tmp_path, PRESETS, old, new)) != []


def test_devcontainer_is_valid():
    jsonschema.validate(load_devcontainer(), DEVCONTAINER)


@pytest.mark.parametrize("key, value", [
    ("image", "debian:12"), ("build", {"dockerfile": "../Dockerfile"}), ("capAdd", "SYS_ADMIN"),
    ("containerEnv", {"GIT_CONFIG_COUNT": 1}), ("customizations", {"vscode": {"extension": []}}),
])
def test_fault_in_a_devcontainer_is_found(key, value):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**load_devcontainer(), key: value}, DEVCONTAINER)


def test_clangd_configuration_is_valid():
    for fragment in load_clangd():
        jsonschema.validate(fragment, CLANGD)


@pytest.mark.parametrize("fragment", [
    {"CompileFlag": {}}, {"If": {"PathMatches": "x"}}, {"CompileFlags": {"Remove": [1]}}])
def test_fault_in_a_clangd_configuration_is_found(fragment):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(fragment, CLANGD)


# --- presets


def test_dev_preset_compiles_one_source_at_a_time_and_links_with_lld():
    variables = load_presets("configurePresets")["dev"]["cacheVariables"]
    assert variables["SLUICE_UNITY"] == variables["SLUICE_PRECOMPILE"] == "OFF"
    linked = {name for name, value in variables.items() if value == "-fuse-ld=lld"}
    assert linked == {f"CMAKE_{kind}_LINKER_FLAGS" for kind in ("EXE", "MODULE", "SHARED")}
    option = re.compile(r"option\((SLUICE_\w+)")
    lists = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")]
    known = {name for file in lists for name in option.findall(file.read_text())}
    assert {"SLUICE_UNITY", "SLUICE_PRECOMPILE"} <= known


# ./run configures the folder of the preset `release` without tests. The preset adds them again,
# because its variables replace those of the cache.
def test_release_preset_builds_the_tests_after_a_run_without_them(tmp_path):
    variables = load_presets("configurePresets")["release"]["cacheVariables"]
    assert variables["SLUICE_TESTS"] == variables["SLUICE_BENCHMARKS"] == "ON"
    run = (ROOT / "run").read_text()
    options = re.search(r"^options=\(\)\n(?:.+\n)*?  options=.*\n", run, re.MULTILINE)[0]
    cache = tmp_path / "build" / "release" / "CMakeCache.txt"
    cache.parent.mkdir(parents=True)
    without = "-DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF"
    cases = [(None, without), ("OFF", without), ("ON", "")]
    for value, expected in cases:
        if value is not None:
            cache.write_text(f"SLUICE_TESTS:BOOL={value}\n")
        printed = subprocess.run(
            ["bash", "-euc", options + 'echo "${options[*]}"'],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        ).stdout
        assert printed.strip() == expected


def test_each_test_preset_has_a_configure_preset_and_fails_without_tests():
    base, *_ = json.loads(PRESETS.read_text())["testPresets"]
    assert base["output"]["outputOnFailure"] and base["execution"]["noTestsAction"] == "error"
    for name, preset in load_presets("testPresets").items():
        assert preset["inherits"] == base["name"] and preset["configurePreset"] == name
        assert name in load_presets("configurePresets")


def test_tsan_preset_runs_the_programs_that_the_test_script_runs():
    listed = re.search(r"^tsan_tests=\((.*?)\)", (ROOT / "test").read_text(), re.M | re.S)[1]
    run_by_script = {pathlib.PurePath(word).name for word in listed.split()}
    pattern = load_presets("testPresets")["tsan"]["filter"]["include"]["name"]
    lists = "".join(file.read_text() for file in (ROOT / "tests").rglob("CMakeLists.txt"))
    programs = set(re.findall(r"sluice_test\(\s*(\w+)", lists))
    assert {name for name in programs if re.fullmatch(pattern, name)} == run_by_script


KINDS = {"cmake": "configurePresets", "cmake --build": "buildPresets", "ctest": "testPresets"}


def test_presets_named_in_documents_exist():
    for page in [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        named = re.findall(r"\b(cmake --build|cmake|ctest) --preset (\w+)", page.read_text())
        for command, name in named:
            assert name in load_presets(KINDS[command]), f"{page.name}: {command} --preset {name}"


# --- editors


def test_clangd_reads_the_compile_commands_of_the_dev_preset():
    flags = load_clangd()[0]["CompileFlags"]
    assert flags["CompilationDatabase"] == "build/dev" and "dev" in load_presets("configurePresets")
    assert set(check_tidy.OF_GCC) <= set(flags["Remove"])


def test_clangd_ignores_sources_that_clang_cannot_parse():
    fragment = load_clangd()[1]
    assert fragment["Diagnostics"] == {"Suppress": "*"}
    patterns = fragment["If"]["PathMatch"]
    sources = [path.relative_to(ROOT) for folder in check_tidy.FOLDERS
               for path in (ROOT / folder).rglob("*.cc")]
    silent = {path for path in sources
              if any(re.fullmatch(pattern, str(path)) for pattern in patterns)}
    assert silent == {path for path in sources if not check_tidy.is_checked(path)}


@pytest.mark.parametrize("path, indent", [
    ("engine/engine.h", "2"), ("kernels/cuda/norm.cu", "2"), ("CMakeLists.txt", "2"),
    ("config/sluice.yaml", "2"), ("test", "2"), ("tools/common.sh", "2"), ("README.md", "2"),
    ("tools/plant.py", "4")])
def test_editors_use_the_indentation_and_columns_of_the_checks(path, indent):
    assert (ROOT / path).is_file()
    properties = editorconfig.get_properties(str(ROOT / path))
    assert properties["indent_style"] == "space" and properties["indent_size"] == indent
    assert properties["max_line_length"] == str(check_lines.COLUMNS)
    assert properties["insert_final_newline"] == "true"
    style = yaml.safe_load((ROOT / ".clang-format").read_text())
    assert (style["BasedOnStyle"], style["ColumnLimit"]) == ("Google", check_lines.COLUMNS)


@pytest.mark.parametrize("path", ["tests/goldens/README.txt", "models/demo/config.json",
                                  "tests/fuzz/corpus/x", "loadtest/results/x.txt"])
def test_editors_do_not_change_data(path):
    properties = editorconfig.get_properties(str(ROOT / path))
    assert properties["trim_trailing_whitespace"] == "unset"
    assert properties["insert_final_newline"] == "unset" and properties["max_line_length"] == "off"


# --- hooks


def load_hooks():
    """Returns the hooks by id. Each one is local."""
    repositories = yaml.safe_load(HOOKS.read_text())["repos"]
    assert {repository["repo"] for repository in repositories} == {"local"}
    return {hook["id"]: hook for repository in repositories for hook in repository["hooks"]}


@pytest.mark.parametrize("hook", load_hooks().values(), ids=lambda hook: hook["id"])
def test_program_of_a_hook_exists(hook):
    program = hook["entry"].split()[0]
    found = os.access(ROOT / program, os.X_OK) if "/" in program else shutil.which(program)
    assert hook["language"] == "system" and found, program
    # pre-commit ignores unknown keys of a hook.
    assert set(hook) <= {"id", "name", "entry", "language", "files", "pass_filenames", "stages"}


def test_format_hook_reads_the_files_that_check_format_reads():
    folders = re.search(r"\bbase cascades [a-z ]+", (ROOT / "tools/check_format.sh").read_text())[0]
    pattern = re.compile(load_hooks()["format"]["files"])
    for folder in folders.split():
        for suffix in ("cc", "h", "inc", "cu"):
            assert pattern.search(f"{folder}/x/y.{suffix}")
        assert not pattern.search(f"{folder}/x.py")
    assert not pattern.search("proto/x.h") and not pattern.search("docs/engine/x.cc")


# --- devcontainer and workflow


def test_devcontainer_builds_a_stage_of_the_dockerfile():
    container = load_devcontainer()
    folder = ROOT / ".devcontainer"
    dockerfile = folder / container["build"]["dockerfile"]
    stages = re.findall(r"^FROM \S+ AS (\S+)$", dockerfile.read_text(), re.M)
    assert container["build"]["target"] in stages
    assert (folder / container["build"]["context"]).resolve() == ROOT
    assert os.access(ROOT / container["postCreateCommand"], os.X_OK)


def test_setup_of_a_machine_installs_lists_that_exist_and_the_pinned_hooks():
    script = ROOT / "tools" / "setup_machine.sh"
    assert run("bash", "-n", script).returncode == 0
    lists = re.search(r"^install_packages (.*)$", script.read_text(), re.M)[1].split()
    assert all((ROOT / name).is_file() for name in lists) and "tools/packages-dev.txt" in lists
    packages = "".join((ROOT / name).read_text() for name in lists)
    for program in ("clang-format", "clangd", "git", "lld", "python3-venv"):
        assert re.search(rf"^{program}$", packages, re.M), program
    requirements = (ROOT / "tools" / "requirements-test.txt").read_text()
    assert len(re.findall(r"^pre-commit==", requirements, re.M)) == 1


def load_steps():
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    return job["steps"]


def test_workflow_runs_the_test_script_and_nothing_else():
    assert [step["run"] for step in load_steps() if "run" in step] == ["./test"]


def test_actions_of_the_workflow_are_pinned_by_commit():
    used = [step["uses"] for step in load_steps() if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) for action in used)


# --- release


def test_packages_and_the_gateway_image_have_the_version_of_the_project():
    cmake = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"^project\(sluice VERSION (\S+)", cmake, re.M)[1]
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "sluice" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    package = (ROOT / "clients" / "python" / "pyproject.toml").read_text()
    assert re.findall(r'^version = "(.*)"$', package, re.M) == [version]
    images = [image for file in (ROOT / "deploy").rglob("*.yaml")
              for image in re.findall(r"\bsluice-gateway:(\d\S*)", file.read_text())]
    assert len(images) >= 2 and set(images) == {version}


def test_recipes_name_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipes = re.findall(r"^## (Adding .*)$", text, re.M)
    for recipe in ("an output tensor", "an error reason", "a command of the client", "an RPC",
                   "a part of a tokenizer"):
        assert f"Adding {recipe}" in recipes
    for recipe in recipes:
        section = text.partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]
        for name in re.findall(r"`((?:base|client|engine|kernels|proto|server|tests|tools|docs"
                               r"|deploy|config)/[\w./-]+\.\w+)`", section):
            assert (ROOT / name).is_file(), f"{recipe}: there is no {name}"


def test_programs_named_in_the_guide_can_be_run_by_their_names():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?<![\w/])((?:tools|deploy|loadtest)/[\w/]+\.(?:py|sh))\b", text))
    programs = [path for path in map(ROOT.joinpath, named)
                if path.suffix == ".sh" or '__name__ == "__main__"' in path.read_text()]
    assert len(programs) > 10
    for path in programs:
        assert os.access(path, os.X_OK) and path.read_text().startswith("#!/usr/bin/env "), path


@pytest.mark.parametrize("sluiced", [ROOT / "build" / "release" / "server" / "sluiced"])
def test_documents_are_made_without_the_program_of_the_last_page(sluiced, tmp_path):
    """After `./run --once` there is no sluice-analysis."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "deploy" / "helm", tmp_path / "deploy" / "helm", symlinks=True)
    for folder in ("tools", "base", "proto", "engine/model/families", "clients"):
        shutil.copytree(ROOT / folder, tmp_path / folder,
                        ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs" / "options.md").write_text("")
    schema = tmp_path / "deploy" / "helm" / "sluice" / "values.schema.json"
    before = schema.read_text()
    schema.write_text(before.replace('"Whole cores', ' "Whole cores'))
    made = subprocess.run([tmp_path / "tools" / "make_docs.py", "--sluiced", sluiced, "--sluice",
                           "false"], capture_output=True, text=True)
    assert made.returncode == 1 and "Traceback" not in made.stderr, made.stderr
    assert made.stderr.startswith("make_docs.py: docs/cascades.md: sluice "), made.stderr
    for name in ("deploy/helm/sluice/values.schema.json", "docs/options.md"):
        if (tmp_path / name).read_text() != (ROOT / name).read_text():
            pytest.fail(f"{name} is out of date; run tools/make_docs.py")
