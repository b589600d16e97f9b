"""The seeds of the fuzz targets are up to date and reach every family, option, parameter, input and
step of a tokenizer."""

import json
import pathlib
import re
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "fuzz")]

import make_corpus  # noqa: E402
import make_docs  # noqa: E402
from request_seeds import options, service_pb2  # noqa: E402

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
RENEW = "run tests/fuzz/make_corpus.py"


def seeds(target):
    return {path.name: path.read_bytes() for path in (CORPUS / target).glob("seed_*")}


def documents(target):
    return [json.loads(data) for data in seeds(target).values() if data.startswith(b"{")]


@pytest.mark.parametrize("target", sorted(make_corpus.SEEDS))
def test_the_corpus_has_the_seeds_of_the_script(target):
    made = {f"seed_{name}": data for name, data in make_corpus.SEEDS[target]()}
    assert made.keys() == seeds(target).keys(), RENEW
    assert made == seeds(target), RENEW


def test_each_target_has_a_corpus():
    targets = {path.name.removesuffix("_fuzz.cc")
               for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cc")}
    assert targets == {path.name for path in CORPUS.iterdir() if any(path.iterdir())}


def test_libfuzzer_reads_whole_seeds():
    script = (ROOT / "tests" / "fuzz" / "run.sh").read_text()
    most = int(re.search(r"-max_len=(\d+)", script)[1])
    assert most == make_corpus.MAX_LEN
    sizes = {path.relative_to(CORPUS): path.stat().st_size for path in CORPUS.glob("*/*")}
    assert {path: size for path, size in sizes.items() if size > most} == {}


@pytest.mark.parametrize("family", make_docs.families(), ids=lambda family: family[0])
def test_each_family_has_a_config_in_the_corpus(family):
    names = {name for names in family[1].values() for name in names}
    assert names & {name for config in documents("model_config")
                    for name in config["architectures"]}, RENEW


def test_each_option_is_in_a_seed():
    set_options = set()

    def add(path, tree):
        for key, value in tree.items():
            at = f"{path}.{key}".lstrip(".")
            set_options.add(at)
            if isinstance(value, dict):
                add(at, value)
            if at == "models":
                for model in value:
                    add("", model)

    for data in seeds("config").values():
        add("", yaml.safe_load(data.decode()))
    names = {name for _, name, _ in options()}
    assert len(names) > 100
    absent = sorted(names - set_options)
    assert not absent, f"no seed in tests/fuzz/corpus/config sets {', '.join(absent)}: {RENEW}"


def names_in(path, pattern):
    """Returns the names that a pattern finds in a source, at least four."""
    names = set(re.findall(pattern, (ROOT / path).read_text()))
    assert len(names) >= 4
    return names


def test_each_parameter_is_in_a_seed_of_both_targets():
    names = names_in("engine/parameter_table.cc", r'\{\.name = "(\w+)"')
    lines = b"\n".join(seeds("parameters").values()).decode(errors="replace").split("\n")
    assert names - {line.partition(":")[0] for line in lines} == set()
    requests = map(service_pb2.ModelInferRequest.FromString, seeds("request").values())
    assert names - {name for request in requests for name in request.parameters} == set()


def test_each_input_is_in_a_seed():
    names = names_in("server/protocol/tensors/inputs.cc", r'\{Input::k\w+, "(\w+)"')
    requests = map(service_pb2.ModelInferRequest.FromString, seeds("request").values())
    assert names - {tensor.name for request in requests for tensor in request.inputs} == set()


# A step of a tokenizer, the member of tokenizer.json that has it, and the name of its list.
STEPS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers",
         "post_processor": "processors", "decoder": "decoders"}


@pytest.mark.parametrize("step", [*STEPS, "subword_model"])
def test_each_type_of_a_step_is_in_a_seed(step):
    member = step.removeprefix("subword_")
    parts = [document.get(member) or {} for document in documents("tokenizer")]
    parts += [part for whole in parts for part in whole.get(STEPS.get(step), [])]
    names = names_in(f"engine/model/tokenizer/{step}.cc", r'if \(type == "(\w+)"')
    assert names - {part.get("type") for part in parts} == set()
