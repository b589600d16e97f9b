"""Tests the program of the client that makes pair_frame.json. test_rerankers.py serves with it."""

import json
import shutil

import pytest
from reranker_models import RERANKERS, frame_of, make_frame
from sluice_client import pair_frame

PLAIN = ("{% for m in messages %}{% if m.role == 'query' %}Q: {{ m.content }}\n"
         "{% elif m.role == 'document' %}D: {{ m.content }}{% endif %}{% endfor %}\n=")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    shutil.copytree(RERANKERS / "qwen3", made)
    return made


def text_of(parts):
    return "".join(part.get("text", "{%s}" % part.get("input")) for part in parts)


def test_the_frame_has_the_text_of_the_template(folder):
    assert make_frame(folder).returncode == 0
    frame, published = frame_of(folder), pair_frame.PUBLISHED["qwen3-reranker"]
    assert {*frame} == {"frame", "frame_with_instruction"}
    assert text_of(frame["frame"]) == published.text
    assert text_of(frame["frame_with_instruction"]) == published.instructed


def test_options_of_the_template_and_structured_messages_are_applied(folder):
    template = ("{% if add_generation_prompt %}G{% endif %}{{ mark }}" + PLAIN).replace(
        "m.content", "m.content[0].text")
    (folder / "chat_template.jinja").write_text(template)
    settings = json.loads((folder / "sentence_bert_config.json").read_text())
    settings["processing_kwargs"]["chat_template"] = {"mark": "M"}
    settings["modality_config"]["message"]["format"] = "structured"
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    made = make_frame(folder)
    assert made.returncode == 0 and "takes no instruction" in made.stderr
    assert frame_of(folder) == {"frame": [
        {"text": "MQ: "}, {"input": "query"}, {"text": "\nD: "}, {"input": "document"},
        {"text": "="}]}


@pytest.mark.parametrize("template, error", [
    (PLAIN.replace("{{ m.content }}{% endif", "{{ m.content | trim }}{% endif"),
     "has the document 0 times, unchanged; expected 1"),
    (PLAIN.replace("Q: {{ m.content }}", "{{ m.content | lower }}{{ m.content }}"),
     "other constant text"),
    (PLAIN.replace("Q: {{ m.content }}", "{{ m.content }}{{ m.content }}"),
     "has the query 2 times"),
    (PLAIN.replace("'query'", "'user'"), "has the query 0 times"),
    (PLAIN.replace("\n=", "{{ messages[0].content | length }}"), "other constant text"),
    ("{{ raise_exception('no pairs') }}", "no pairs"),
    ("{% for i in range(99999999999) %}a{% endfor %}", "chat template failed"),
    ("{{", "does not compile"),
])
def test_a_template_that_changes_its_texts_is_refused(folder, template, error):
    (folder / "chat_template.jinja").write_text(template)
    made = make_frame(folder)
    assert made.returncode == 1 and made.stderr.startswith("pair_frame: cannot make the frame")
    assert error in made.stderr
    assert not (folder / "pair_frame.json").exists()


def test_a_folder_without_a_template_is_refused(folder):
    (folder / "chat_template.jinja").unlink()
    assert "no chat template; name the text with --published" in make_frame(folder).stderr
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"no": 1}}}))
    made = make_frame(folder, "--published", "qwen3-reranker")
    assert "the vocabulary of tokenizer.json has no token 'yes'" in made.stderr


def test_published_rerankers_are_known_by_their_repositories():
    names = {name: pair_frame.published_as(name) for name in (
        "Qwen/Qwen3-Reranker-0.6B", "mixedbread-ai/mxbai-rerank-large-v2",
        "BAAI/bge-reranker-v2-gemma", "BAAI/bge-reranker-v2-m3")}
    assert [*names.values()] == ["qwen3-reranker", "mxbai-rerank-v2", "bge-reranker-v2-gemma", None]
    frame = pair_frame.published_frame("bge-reranker-v2-gemma", {"Yes": 3, "No": 4})
    assert {*frame} == {"frame", "true_token_id", "activation_fn"} and frame["true_token_id"] == 3


def test_only_pairs_of_a_chat_template_need_a_frame(folder):
    assert pair_frame.needs_frame(folder)
    settings = json.loads((folder / "sentence_bert_config.json").read_text())
    del settings["modality_config"]["message"]
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    assert not pair_frame.needs_frame(folder)
    assert not pair_frame.needs_frame(folder / "1_LogitScore")
