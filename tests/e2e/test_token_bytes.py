"""Compares the bytes of generated tokens with the text, for tokenizers of each kind."""

import json

import pytest
from conftest import Daemon
from infer import infer, text_inputs
from tiny_model import lay, tokenizer_path

NAMES = ("gpt2", "llama2", "llama3", "xlm", "albert", "bert_uncased", "clip")
OUTPUTS = ["output_ids", "text_output", "output_bytes", "top_ids", "top_bytes"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    with Daemon(models=[(name, lay(folder / name, name, 128)) for name in NAMES]) as daemon:
        yield daemon


def special_names(name):
    """Returns the names of the tokens that no text shows."""
    document = json.loads(tokenizer_path(name).read_text())
    return {each["id"]: each["content"] for each in document["added_tokens"] if each["special"]}


def visible(text):
    """Leaves out spaces, which decoders drop in places, characters that are not complete, and the
    mark of WordPiece before a text."""
    return text.removeprefix("##").replace(" ", "").replace("\ufffd", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_of_tokens_join_to_the_text(served, first_seed, name):
    special = special_names(name)
    spaces = 0
    with served.client() as client:
        for seed in range(first_seed, first_seed + 10):
            answer = infer(client, text_inputs("the"), OUTPUTS, model=name, max_tokens=40,
                           temperature="2.0", seed=seed, num_top_logprobs=3, ignore_eos=True)
            ids, shown = answer["output_ids"][0], answer["output_bytes"][0]
            assert len(ids) == len(shown) == 40
            joined = b"".join(each for id, each in zip(ids, shown) if id not in special)
            assert visible(joined.decode(errors="replace")) == visible(
                answer["text_output"][0, 0].decode(errors="replace"))
            spaces += sum(each.startswith(b" ") for each in shown)
            known = dict(zip(ids, shown))
            for tokens, texts in zip(answer["top_ids"][0], answer["top_bytes"][0]):
                known |= dict(zip(tokens, texts))
            for id, content in special.items():
                assert known.get(id, content.encode()) == content.encode()
    assert spaces > 0 or name == "clip", "words have the space before them"
