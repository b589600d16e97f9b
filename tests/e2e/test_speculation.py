"""Tests drafted tokens: they change no answer, and every count shows them."""

import json
import subprocess
import urllib.request

import numpy as np
import openai
import pytest
import sluice_client
from conftest import DEMO, ROOT, SANITIZED, SLUICE, SLUICED, Daemon
from gateway import TEMPLATE, Gateway
from tiny_model import write_safetensors
from waiting import PATIENCE_S, wait_until

PROMPT = "And it came to pass"
TOKENS = 40
# The only allowed token is always the right draft.
FORCED = {"max_tokens": TOKENS, "allowed_token_ids": [101], "ignore_eos": True}


@pytest.fixture(scope="module")
def drafting(tmp_path_factory):
    config = tmp_path_factory.mktemp("speculation") / "sluiced.yaml"
    config.write_text(f"models: [{{name: demo, path: {DEMO}, speculation: ngram}}]\n")
    with Daemon("--config", str(config), models=()) as started:
        yield started


def sluice(*arguments):
    return subprocess.run([SLUICE, *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S)


def figures(answer):
    return answer.text, answer.token_ids, answer.logprobs, answer.finish_reason


def test_answers_are_the_same_with_and_without_drafts(drafting):
    with sluice_client.Client(drafting.grpc) as client:
        plain = client.generate("demo", PROMPT, max_tokens=120, seed=3, temperature=0.7,
                                speculation=False)
        assert plain.drafted_tokens == 0
        for options in ({}, {"prediction": plain.text}, {"prediction": "nothing of the kind"}):
            answer = client.generate("demo", PROMPT, max_tokens=120, seed=3, temperature=0.7,
                                     **options)
            assert figures(answer) == figures(plain)
            parts = list(client.stream("demo", PROMPT, max_tokens=120, seed=3, temperature=0.7,
                                       **options))
            assert "".join(part.text for part in parts) == plain.text
            assert [each for part in parts for each in part.logprobs] == plain.logprobs

        def drafts():  # The measured costs may be against drafts while the machine is busy.
            answer = client.generate("demo", PROMPT, max_tokens=120, seed=3, temperature=0.7,
                                     prediction=plain.text)
            assert figures(answer) == figures(plain)
            return answer.accepted_tokens > 0

        wait_until(drafts)


def test_every_count_shows_forced_drafts(drafting):
    before = drafting.metric("sluice_draft_tokens_total", source="forced", result="accepted")
    with sluice_client.Client(drafting.grpc) as client:
        # The measured costs of steps decide about drafts. On a busy machine they may be against
        # them for a while.
        answers = []

        def drafts():
            answers.append(client.generate("demo", PROMPT, request_id="forced", **FORCED))
            return answers[-1].accepted_tokens > 0

        wait_until(drafts)
        answer = answers[-1]
        assert answer.token_ids == [101] * TOKENS
        plain = client.generate("demo", PROMPT, speculation=False, **FORCED)
        assert figures(plain) == figures(answer)
    assert answer.accepted_tokens == answer.drafted_tokens < TOKENS
    after = drafting.metric("sluice_draft_tokens_total", source="forced", result="accepted")
    assert after - before == sum(each.accepted_tokens for each in answers)
    words = sluice("explain", "forced", "--admin", drafting.admin).stdout
    assert (f"checked {answer.drafted_tokens} drafted tokens of the source forced; "
            f"{answer.drafted_tokens} were") in words
    told = json.loads(sluice("explain", "forced", "--json", "--admin", drafting.admin).stdout)
    assert int(told["accepted_tokens"]) == answer.accepted_tokens
    assert int(told["total_steps"]) < TOKENS
    address = f"http://{drafting.http}/status.json"
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as page:
        kv = json.load(page)["models"][0]["kv"]
    assert kv["drafted_tokens"] >= kv["accepted_tokens"] >= answer.accepted_tokens
    assert kv["draft_sources"]["forced"]["accepted"] >= answer.accepted_tokens


def test_the_gateway_reads_predictions_and_counts_drafts(drafting, tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text(TEMPLATE)
    with Gateway(drafting, "--chat", f"demo={template}", "--tokenizer", f"demo={DEMO}") as gateway:
        asked = {"model": "demo", "messages": [{"role": "user", "content": PROMPT}], "seed": 4,
                 "max_tokens": 80}
        plain = gateway.post("/v1/chat/completions", {**asked, "speculation": False}).json
        assert plain["usage"]["completion_tokens_details"] == {
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
        text = plain["choices"][0]["message"]["content"]
        for content in (text, [{"type": "text", "text": text}], "x" * 70_000):
            answer = gateway.post("/v1/chat/completions", {
                **asked, "prediction": {"type": "content", "content": content}}).json
            assert answer["choices"] == plain["choices"]
        refused = gateway.post("/v1/chat/completions", {**asked, "prediction": {"type": "x"}})
        assert refused.status == 400 and refused.json["error"]["param"] == "prediction.type"

        def drafts():
            usage = gateway.post("/v1/completions", {
                "model": "demo", "prompt": PROMPT, **FORCED}).json["usage"]
            counts = usage["completion_tokens_details"]
            assert counts["rejected_prediction_tokens"] == 0
            return counts["accepted_prediction_tokens"] > 0

        wait_until(drafts)
        with openai.OpenAI(base_url=f"http://{gateway.address}/v1", api_key="none") as client:
            made = client.chat.completions.create(
                **asked, prediction={"type": "content", "content": text})
            assert made.choices[0].message.content == text


def test_a_prediction_is_validated(demo):
    with sluice_client.Client(demo.grpc) as client:
        with pytest.raises(sluice_client.errors.SluiceError, match="prediction"):
            client.generate("demo", PROMPT, max_tokens=2, prediction="x" * 65_537)
        answer = client.generate("demo", PROMPT, max_tokens=9, prediction="x")
        assert answer.drafted_tokens == 0, "the model is served without drafts"


def write_models(path, *models):
    path.write_text(f"models: [{', '.join(models)}]\n")
    return str(path)


def write_deeper(folder, layers):
    """Writes the demo model with more layers, which add zero to its states. So the demo model's
    tokens are right drafts, and take a small part of the time."""
    config = json.loads((DEMO / "config.json").read_text())
    first = config["num_hidden_layers"]
    config["num_hidden_layers"] += layers
    content = (DEMO / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, each in json.loads(content[8:begin]).items():
        if name == "__metadata__":
            continue
        assert each["dtype"] == "BF16"
        tensors[name] = np.frombuffer(
            content, np.uint16, np.prod(each["shape"], dtype=int), begin + each["data_offsets"][0]
        ).reshape(each["shape"])
    last = f"model.layers.{first - 1}."
    for name, tensor in list(tensors.items()):
        for layer in range(first, first + layers) if name.startswith(last) else ():
            adds = "o_proj" in name or "down_proj" in name
            tensors[name.replace(last, f"model.layers.{layer}.")] = tensor * (0 if adds else 1)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors, "BF16")
    return folder


def test_a_model_of_the_configuration_drafts(tmp_path):
    config = write_models(
        tmp_path / "sluiced.yaml",
        f"{{name: large, path: {write_deeper(tmp_path / 'deeper', 60)},"
        " speculation: {draft: small, tokens: 3}}",
        f"{{name: small, path: {DEMO}}}")
    options = {"max_tokens": 60, "temperature": 0.7, "seed": 5}

    def drafts():
        """The costs that a start measures on a busy machine may be against drafts."""
        with Daemon("--config", config, models=()) as daemon:
            with sluice_client.Client(daemon.grpc) as client:
                plain = client.generate("large", PROMPT, speculation=False, **options)
                answer = client.generate("large", PROMPT, request_id="drafted", **options)
            assert figures(answer) == figures(plain)
            assert answer.accepted_tokens == answer.drafted_tokens
            told = json.loads(
                sluice("explain", "drafted", "--json", "--admin", daemon.admin).stdout)
            assert told["draft_source"] == ("model" if answer.drafted_tokens else "")
            assert daemon.metric("sluice_draft_tokens_total", model="large", source="model",
                                 result="accepted") == answer.accepted_tokens
            # With sanitizers a draft costs more than it gains.
            return answer.drafted_tokens > 0 or SANITIZED

    wait_until(drafts)


def test_a_draft_model_with_another_vocabulary_is_refused(tmp_path):
    other = ROOT / "tests" / "goldens" / "llama_mha"
    config = write_models(tmp_path / "sluiced.yaml",
                          f"{{name: large, path: {DEMO}, speculation: {{draft: other}}}}",
                          f"{{name: other, path: {other}}}")
    checked = subprocess.run([SLUICED, "--config", config, "--check"], capture_output=True,
                             text=True, timeout=PATIENCE_S)
    assert checked.returncode != 0
    assert "speculation.draft: model other has" in checked.stderr + checked.stdout
