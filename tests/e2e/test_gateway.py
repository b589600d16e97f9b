"""Tests that the gateway's APIs return the same bits as gRPC."""

import base64
import asyncio
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import openai
import pytest
import tritonclient.http as httpclient
from conftest import DEMO, ROOT, free_port
from gateway import Gateway
from gateway_fixtures import client, gateway, page, template
from infer import ids_inputs, infer, text_inputs
from sentence_models import SENTENCES
from tiny_model import TinyModel
from waiting import PATIENCE_S, wait_until

PROMPT = "And it came to pass"


def counts(answer):
    return answer.usage.prompt_tokens, answer.usage.completion_tokens


def test_completions_have_the_bits_of_grpc(demo, gateway, client):
    with demo.client() as other:
        expected = infer(other, text_inputs(PROMPT), max_tokens=20, temperature="0.8", seed=5,
                         num_top_logprobs=2, stop='["zz"]', logit_bias='{"101": -2}')
    answer = client.completions.create(model="demo", prompt=PROMPT, max_tokens=20, temperature=0.8,
                                       seed=5, logprobs=2, stop=["zz"], logit_bias={"101": -2})
    choice = answer.choices[0]
    assert choice.text.encode() == expected["text_output"][0, 0]
    assert choice.finish_reason.encode() == expected["finish_reason"][0, 0]
    np.testing.assert_array_equal(np.float32(choice.logprobs.token_logprobs),
                                  expected["logprobs"][0])
    def text(byte):  # The demo model's tokens are bytes; two more tokens have no text.
        return "" if byte > 255 else chr(byte) if byte < 128 else f"bytes:\\x{byte:02x}"

    assert choice.logprobs.tokens == [text(each) for each in expected["output_ids"][0]]
    assert [list(each) for each in choice.logprobs.top_logprobs] == [
        list(dict.fromkeys(map(text, (*top, drawn))))
        for top, drawn in zip(expected["top_ids"][0], expected["output_ids"][0])]
    assert choice.logprobs.text_offset == list(range(20))
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(PROMPT) + 1, 20)
    assert usage.total_tokens == len(PROMPT) + 21


def test_streamed_completion_equals_the_unary_one(client):
    asked = {"model": "demo", "prompt": PROMPT, "max_tokens": 40, "seed": 3, "n": 2}
    whole = client.completions.create(**asked)
    parts = list(client.completions.create(**asked, stream=True,
                                           stream_options={"include_usage": True}))
    assert counts(parts[-1]) == counts(whole) and not parts[-1].choices
    assert whole.usage.prompt_tokens == len(PROMPT) + 1  # The prompt of two answers counts once.
    texts = ["", ""]
    for part in parts[:-1]:
        texts[part.choices[0].index] += part.choices[0].text
    assert texts == [each.text for each in whole.choices]
    assert texts[0] != texts[1]  # Each answer has a different seed.


def test_a_stream_has_its_whole_text_before_the_reason_of_its_end(client):
    """Clients of OpenAI's API may stop reading at finish_reason."""
    asked = {"model": "demo", "max_tokens": 12, "temperature": 0}
    given = {"prompt": PROMPT}, {"messages": [{"role": "user", "content": PROMPT}]}
    for call, prompt in zip((client.completions, client.chat.completions), given):
        choice = call.create(**asked, **prompt).choices[0]
        whole = choice.text if "prompt" in prompt else choice.message.content
        for _ in range(5):
            text = ""
            for part in call.create(**asked, **prompt, stream=True):
                choice = part.choices[0]
                if choice.finish_reason:
                    assert choice.finish_reason == "length"
                    break
                text += choice.text if "prompt" in prompt else choice.delta.content
            assert text == whole


def test_chat_equals_the_completion_of_its_rendered_template(client):
    messages = [{"role": "system", "content": "Speak."},
                {"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
    asked = {"model": "demo", "max_tokens": 30, "temperature": 0}
    prompt = f"system: Speak.\nuser: {PROMPT}\nassistant:"
    expected = client.completions.create(prompt=prompt, **asked)
    answer = client.chat.completions.create(messages=messages, logprobs=True, top_logprobs=2,
                                            **asked)
    message = answer.choices[0].message
    assert message.role == "assistant" and message.content == expected.choices[0].text
    assert counts(answer) == counts(expected)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(each.bytes) for each in content).decode() == message.content
    assert [each.token for each in content] == list(message.content)
    for each in content:
        assert len(each.top_logprobs) == 2
        assert (each.token, each.bytes) == (each.top_logprobs[0].token, each.top_logprobs[0].bytes)
    parts = list(client.chat.completions.create(messages=messages, stream=True, **asked))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content for part in parts) == message.content
    assert [part.choices[0].finish_reason for part in parts][-1] == "length"


def test_top_logprobs_without_logprobs_are_refused(gateway):
    refused = gateway.post("/v1/chat/completions", {
        "model": "demo", "messages": [{"role": "user", "content": PROMPT}], "top_logprobs": 2})
    assert refused.status == 400 and refused.json["error"]["param"] == "top_logprobs"


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_have_the_bits_of_grpc(demo, client, gateway, form):
    inputs = ["And God said", "Jerusalem", "a"]
    with demo.client() as other:
        expected = infer(other, text_inputs(*inputs), ["embedding"], pooling="mean")["embedding"]
        units = infer(other, text_inputs(*inputs), ["embedding"], pooling="mean",
                      normalize=True)["embedding"]
    asked = {"model": "demo", "input": inputs, "pooling": "mean", "encoding_format": form}
    answer = gateway.post("/v1/embeddings", {**asked, "normalize": False}).json
    vectors = [each["embedding"] for each in answer["data"]]
    if form == "base64":
        vectors = [np.frombuffer(base64.b64decode(each), "<f4") for each in vectors]
    assert np.float32(vectors).tobytes() == expected.tobytes()
    # As in OpenAI's API, vectors have the length 1 by default.
    normal = gateway.post("/v1/embeddings", {**asked, "encoding_format": "float"}).json
    assert np.float32([each["embedding"] for each in normal["data"]]).tobytes() == units.tobytes()
    assert answer["usage"]["prompt_tokens"] == sum(map(len, inputs)) + len(inputs)
    made = client.embeddings.create(model="demo", input=inputs, extra_body={"pooling": "mean"})
    np.testing.assert_array_equal(np.float32([each.embedding for each in made.data]), units)


def test_token_ids_need_a_flag_and_give_the_same_answers_as_texts(demo, client):
    ids = [256, *PROMPT.encode()]
    asked = {"model": "demo", "max_tokens": 5, "temperature": 0}
    with Gateway(demo, "--allow-token-ids") as started, openai.OpenAI(
        base_url=f"http://{started.address}/v1", api_key="none", max_retries=0
    ) as allowed:
        by_text = client.completions.create(prompt=[PROMPT, "And"], **asked)
        by_ids = allowed.completions.create(prompt=[ids, [256, *b"And"]], **asked)
        assert [each.text for each in by_ids.choices] == [each.text for each in by_text.choices]
        vectors = [caller.embeddings.create(model="demo", input=each).data[0].embedding
                   for caller, each in ((client, PROMPT), (allowed, ids))]
        assert vectors[0] == vectors[1]
    for call in (client.completions, client.embeddings):
        given = {"prompt": ids} if call is client.completions else {"input": [ids]}
        with pytest.raises(openai.BadRequestError, match="--allow-token-ids") as refused:
            call.create(model="demo", **given)
        assert "check_embedding_ctx_length=False" in str(refused.value)


def test_start_prints_address_daemon_and_models(demo, template):
    started = Gateway(demo, "--chat", f"demo={template}", "--tokenizer", f"demo={DEMO}")
    assert started.stop() == (0, f"sluice-gateway: http://{started.address} serves the daemon at"
                                 f" {demo.grpc}; models: demo (with chats)\n")
    away = Gateway(f"127.0.0.1:{free_port()}")
    status, output = away.stop()
    assert status == 0 and "its models are unknown (" in output


def test_fields_without_effect_are_accepted(client):
    messages = [{"role": "user", "content": "And"}]
    asked = {"model": "demo", "messages": messages, "max_tokens": 4, "temperature": 0}
    expected = client.chat.completions.create(**asked).choices[0].message.content
    for field, value in {
        "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto",
        "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h",
        "verbosity": "low", "parallel_tool_calls": True, "response_format": {"type": "text"},
        "tools": [], "tool_choice": "none", "reasoning_effort": "none", "modalities": ["text"],
    }.items():
        answer = client.chat.completions.create(**asked, **{field: value})
        assert answer.choices[0].message.content == expected, field


def test_a_history_may_have_names_and_empty_fields(client, gateway):
    history = [{"role": "user", "content": "And"},
               {"role": "assistant", "content": "God", "name": "x", "id": "m", "refusal": None,
                "tool_calls": [], "annotations": [], "reasoning_content": "hm"},
               {"role": "assistant", "content": None, "tool_calls": []}]
    bare = [{"role": "user", "content": "And"}, {"role": "assistant", "content": "God"},
            {"role": "assistant", "content": ""}]
    asked = {"model": "demo", "max_tokens": 4, "temperature": 0}
    answers = [gateway.post("/v1/chat/completions", {**asked, "messages": each}).json
               for each in (history, bare)]
    assert answers[0]["choices"] == answers[1]["choices"]


def test_a_call_may_have_many_prompts(client):
    prompts = [f"And {each}" for each in range(80)]
    asked = {"model": "demo", "max_tokens": 2, "temperature": 0}
    whole = client.completions.create(prompt=prompts, **asked)
    assert [each.index for each in whole.choices] == list(range(80))
    one = client.completions.create(prompt=prompts[70], **asked)
    assert whole.choices[70].text == one.choices[0].text
    texts = [""] * 80
    for part in client.completions.create(prompt=prompts, stream=True, **asked):
        texts[part.choices[0].index] += part.choices[0].text
    assert texts == [each.text for each in whole.choices]


def test_lists_above_the_limit_of_the_daemon_are_split(demo, daemon):
    texts = [f"And {each}" for each in range(7)]
    narrow = daemon("--server.grpc.max-rows", "3")
    asked = [("/v1/embeddings", {"model": "demo", "input": texts}),
             ("/v1/rerank", {"model": "demo", "query": "And", "documents": texts})]
    with Gateway(demo) as whole, Gateway(narrow) as split:
        for path, body in asked:
            answers = [each.post(path, body, x_request_id="r").json for each in (whole, split)]
            assert answers[0] == answers[1]


def test_usage_counts_truncated_tokens(gateway):
    long = "a" * 300  # The model has 256 positions and adds a token to a text.
    asked = {"model": "demo", "input": ["a", long]}
    refused = gateway.post("/v1/embeddings", asked)
    assert refused.status == 400 and "256" in refused.json["error"]["message"]
    assert "truncate" in refused.json["error"]["message"]
    for truncate in ("right", "END", "START", True):
        usage = gateway.post("/v1/embeddings", {**asked, "truncate": truncate}).json["usage"]
        assert usage == {"prompt_tokens": 258, "total_tokens": 258, "truncated_tokens": 45}
    assert gateway.post("/v1/embeddings", {**asked, "truncate": False}).status == 400
    for stream in (False, True):
        reply = gateway.post("/v1/completions", {
            "model": "demo", "prompt": [long, "a"], "truncate": "left", "max_tokens": 1, "n": 2,
            "stream": stream, "stream_options": {"include_usage": True} if stream else None})
        usage = (reply.events[-1] if stream else reply.json)["usage"]
        assert usage["truncated_tokens"] == 45 and usage["prompt_tokens"] == 258


def test_usage_counts_cached_tokens(daemon):
    with Gateway(daemon()) as gateway:
        asked = {"model": "demo", "prompt": "In the beginning God created " * 7, "max_tokens": 1}
        counts = []
        for stream in (False, False, True):
            reply = gateway.post("/v1/completions", {
                **asked, "stream": stream,
                "stream_options": {"include_usage": True} if stream else None})
            usage = (reply.events[-1] if stream else reply.json)["usage"]
            counts.append(usage["prompt_tokens_details"]["cached_tokens"])
            assert counts[-1] < usage["prompt_tokens"]
        assert counts[0] == 0 < counts[1] == counts[2]


def test_a_classifier_has_no_embeddings(daemon):
    started = daemon(models=[("cross", SENTENCES / "cross_1"), ("tokens", SENTENCES / "tokens")])
    with Gateway(started) as gateway:
        for model, kind in (("cross", "reranker"), ("tokens", "classifier of tokens")):
            refused = gateway.post("/v1/embeddings", {"model": model, "input": "a"})
            assert refused.status == 400 and kind in refused.json["error"]["message"]
            assert refused.json["error"]["param"] == "model"


def test_the_open_inference_protocol_has_the_bits_of_grpc(demo, gateway):
    rows = [[3, 17, 5], [1], [30, 2, 2, 9]]
    names = ["output_ids", "logprobs", "text_output", "embedding"]
    with demo.client() as other:
        expected = infer(other, ids_inputs(rows), names, max_tokens=4)
        metadata = other.get_model_metadata("demo", as_json=True)
    padded = np.zeros((3, 4), np.int32)
    for row, ids in zip(padded, rows):
        row[: len(ids)] = ids
    lengths = np.array([[3], [1], [4]], np.int32)
    with httpclient.InferenceServerClient(gateway.address) as http:
        assert http.is_server_live() and http.is_server_ready() and http.is_model_ready("demo")
        shown = http.get_model_metadata("demo")
        assert [each["name"] for each in shown["outputs"]] == [
            each["name"] for each in metadata["outputs"]]
        for binary in (False, True):
            inputs = [httpclient.InferInput("input_ids", [3, 4], "INT32"),
                      httpclient.InferInput("input_lengths", [3, 1], "INT32")]
            inputs[0].set_data_from_numpy(padded, binary_data=binary)
            inputs[1].set_data_from_numpy(lengths, binary_data=binary)
            outputs = [httpclient.InferRequestedOutput(name, binary_data=binary) for name in names]
            answer = http.infer("demo", inputs, outputs=outputs, request_id="7",
                                parameters={"max_tokens": 4})
            assert answer.get_response()["id"] == "7"
            for name in ("output_ids", "logprobs", "embedding"):
                assert answer.as_numpy(name).tobytes() == expected[name].tobytes(), (name, binary)
            texts = answer.as_numpy("text_output").ravel()
            wanted = expected["text_output"].ravel()
            if binary:
                assert list(texts) == list(wanted)
            else:  # JSON holds characters, not bytes.
                assert list(texts) == [each.decode(errors="replace") for each in wanted]


def test_non_finite_values_require_binary_data(gateway):
    asked = {"inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [1, 2],
                         "data": [1, 2]},
                        {"name": "candidate_ids", "datatype": "INT64", "shape": [1, 2],
                         "data": [[5, -1]]}],
             "outputs": [{"name": "candidate_scores"}]}
    refused = gateway.post("/v2/models/demo/infer", asked)
    assert refused.status == 400 and "binary_data" in refused.json["error"]
    asked["outputs"][0]["parameters"] = {"binary_data": True}
    answer = gateway.post("/v2/models/demo/infer", asked)
    head = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:head])["outputs"]
    values = np.frombuffer(answer.body[head:], "<f4")
    assert output["parameters"] == {"binary_data_size": 8} and values[1] == -np.inf


def test_documents_are_ranked(demo, gateway, daemon, tmp_path):
    asked = {"model": "demo", "query": "And God said", "top_n": 2, "return_documents": True,
             "documents": ["Jerusalem", "And God said", {"text": "And the LORD said"}]}
    refused = gateway.post("/v1/rerank", asked)
    assert refused.status == 501 and "generates text" in refused.json["message"]
    folder = tmp_path / "embeds"
    shutil.copytree(ROOT / "models" / "demo", folder)
    config = json.loads((folder / "config.json").read_text())
    config["sluice"]["embedding"] = {"pooling": "last"}
    (folder / "config.json").write_text(json.dumps(config))
    with Gateway(daemon(models=[("demo", folder)])) as other:
        results = other.post("/v1/rerank", asked).json["results"]
        cut = other.post("/v1/rerank", {**asked, "documents": ["a" * 300], "truncate": "END"}).json
    assert cut["usage"]["truncated_tokens"] == 45
    assert [each["index"] for each in results] == [1, 2]
    assert results[1]["document"] == {"text": "And the LORD said"}
    assert results[0]["relevance_score"] == pytest.approx(1, abs=1e-5)


def test_models_are_listed(client):
    assert [each.id for each in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "sluice"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/none")


@pytest.mark.parametrize(
    "path, body, status, field, text",
    [
        ("/v1/completions", {"model": "none", "prompt": "a"}, 404, None, "none"),
        ("/v1/completions", {"model": "demo"}, 400, "prompt", "missing"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "temperatur": 1}, 400, "temperatur",
         "not a supported field"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "top_p": 7}, 400, "top_p", "top_p"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "n": 17}, 400, "n", "[1, 16]"),
        ("/v1/completions", {"model": "demo", "prompt": ["a"] * 1025, "n": 2}, 400, "n",
         "2050 answers"),
        ("/v1/embeddings", {"model": "demo", "input": ["a"] * 2049}, 400, "input", "2049 rows"),
        ("/v1/embeddings", {"model": "demo", "input": "a", "truncate": 1}, 400, "truncate", "END"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "stop": [1]}, 400, "stop", "text"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "echo": True}, 400, "echo", "false"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "stream": 1}, 400, "stream", "true"),
        ("/v1/completions", {"model": "demo", "prompt": [[1], "a"]}, 400, "prompt[1]", "token"),
        ("/v1/completions", {"model": "demo", "prompt": [True]}, 400, "prompt", "token id"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "logit_bias": {"x": 1}}, 400,
         "logit_bias", "token id"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "top_p": 10**400}, 400, "top_p",
         "too large"),
        ("/v1/embeddings", {"model": "demo", "input": []}, 400, "input", "text"),
        ("/v1/embeddings", {"model": "demo", "input": "a", "dimensions": 0}, 400, "dimensions",
         "integer"),
        ("/v1/embeddings", {"model": "demo", "input": "a", "dimensions": 1 << 20}, 400,
         "dimensions", "dimensions"),
        ("/v1/embeddings", {"model": "demo", "input": "a" * 999}, 400, "input", "truncate"),
        ("/v1/chat/completions", {"model": "none", "messages": []}, 404, None, "demo"),
        ("/v1/chat/completions", {"model": "demo", "messages": []}, 400, "messages", "empty"),
        ("/v1/chat/completions", {"model": "demo", "messages": [{"role": "x", "content": "a"}]},
         400, "messages[0].role", "system"),
        ("/v1/chat/completions", {"model": "demo", "messages": [
            {"role": "user", "content": [{"type": "image_url"}]}]}, 400,
         "messages[0].content[0].type", "text"),
        ("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "a"}],
                                  "tools": [{}]}, 400, "tools", "not supported"),
        ("/v1/chat/completions", {"model": "demo", "messages": [
            {"role": "assistant", "content": "a", "tool_calls": [{}]}]}, 400,
         "messages[0].tool_calls", "not supported"),
        ("/v1/chat/completions", {"model": "demo", "messages": [
            {"role": "user", "content": None}]}, 400, "messages[0].content", "missing"),
    ],
)
def test_errors_have_the_shape_of_openai(gateway, path, body, status, field, text):
    refused = gateway.post(path, body)
    error = refused.json["error"]
    assert refused.status == status and text in error["message"], refused.body
    assert error["param"] == field and error["type"] == "invalid_request_error"


def test_a_chat_needs_a_served_model_that_generates_and_its_template(daemon):
    started = daemon(models=[("demo", DEMO), ("cross", SENTENCES / "cross_1")])
    with Gateway(started) as gateway:
        asked = {"messages": [{"role": "user", "content": "a"}]}
        unknown, cross, demo = (
            gateway.post("/v1/chat/completions", {**asked, "model": model})
            for model in ("none", "cross", "demo"))
        completion = gateway.post("/v1/completions", {"model": "none", "prompt": "a"})
        assert (unknown.status, unknown.json) == (completion.status, completion.json)
        assert unknown.status == 404 and unknown.json["error"]["code"] == "model_not_found"
        assert "cross, demo" in unknown.json["error"]["message"]
        assert cross.status == 400 and cross.json["error"]["param"] == "model"
        assert "does not generate" in cross.json["error"]["message"]
        assert "--chat" not in cross.json["error"]["message"]
        assert demo.status == 400 and demo.json["error"]["param"] == "model"
        assert "own folder" in demo.json["error"]["message"]


def test_a_model_has_further_names(demo, template):
    with Gateway(demo, "--alias", "org/small=demo", "--alias", "gpt-4=demo", "--default-model",
                 "gpt-4", "--chat", f"demo={template}", "--tokenizer", f"demo={DEMO}") as gateway:
        listed = [each["id"] for each in gateway.get("/v1/models").json["data"]]
        assert listed == ["demo", "gpt-4", "org/small"]
        assert gateway.get("/v1/models/org/small").json["id"] == "org/small"
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "seed": 1}
        answers = [gateway.post("/v1/chat/completions", {**asked, "model": name}).json
                   for name in ("demo", "org/small")]
        assert answers[0]["choices"] == answers[1]["choices"]
        assert [each["model"] for each in answers] == ["demo", "org/small"]
        streamed = gateway.post("/v1/completions", {
            "model": "org/small", "prompt": "a", "max_tokens": 2, "stream": True})
        assert streamed.status == 200 and b"[DONE]" in streamed.body
        assert gateway.post("/embed", {"inputs": "a"}).status == 200
        unknown = gateway.post("/v1/embeddings", {"model": "org/other", "input": "a"})
        assert unknown.status == 404
        assert "further names (--alias): gpt-4, org/small" in unknown.json["error"]["message"]


@pytest.mark.parametrize("alias", ["a b=demo", "a:b=demo", "=demo", "a"])
def test_aliases_that_are_no_names_are_refused(alias):
    ended = subprocess.run([sys.executable, "-m", "sluice_client.gateway", "--alias", alias],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2 and "--alias" in ended.stderr


def test_a_chat_without_a_limit_ends_at_the_last_position_at_most(gateway):
    for length in (1, 60, 150, 200, 220):
        prompt = {"model": "demo", "messages": [{"role": "user", "content": "x" * length}],
                  "logit_bias": {"256": -100}, "ignore_eos": True}
        usage = gateway.post("/v1/chat/completions", prompt).json["usage"]
        assert usage["total_tokens"] == 257, (length, usage)
    long = gateway.post("/v1/chat/completions", {
        "model": "demo", "messages": [{"role": "user", "content": "x" * 300}]})
    assert long.status == 400 and long.json["error"]["code"] == "context_length_exceeded"
    assert "max_tokens is" not in long.json["error"]["message"]
    cut = gateway.post("/v1/chat/completions", {
        "model": "demo", "messages": [{"role": "user", "content": "x" * 300}], "truncate": "left",
        "logit_bias": {"256": -100}, "ignore_eos": True}).json["usage"]
    assert cut["completion_tokens"] == 128 and cut["total_tokens"] == 257, cut


def test_the_logprobs_of_a_completion_have_the_drawn_tokens(gateway):
    for top in (0, 1):
        logprobs = gateway.post("/v1/completions", {
            "model": "demo", "prompt": "In the", "max_tokens": 30, "seed": 1, "temperature": 2,
            "logprobs": top}).json["choices"][0]["logprobs"]
        drawn = list(zip(logprobs["tokens"], logprobs["token_logprobs"]))
        assert len(drawn) == 30
        assert [(token, tops[token]) for (token, _), tops in zip(drawn, logprobs["top_logprobs"])
                ] == drawn
        assert {len(each) for each in logprobs["top_logprobs"]} <= {1, 1 + top}


def test_a_chat_that_fits_is_not_cut(gateway):
    asked = {"model": "demo", "logit_bias": {"256": -100}, "ignore_eos": True, "truncate": "left"}
    for length in (60, 180, 220):
        usage = gateway.post("/v1/chat/completions", {
            **asked, "messages": [{"role": "user", "content": "x" * length}]}).json["usage"]
        assert "truncated_tokens" not in usage and usage["prompt_tokens"] > length, usage
        assert usage["total_tokens"] == 257, usage


def test_a_stream_has_the_text_that_no_stop_completes(gateway):
    """The stop token ends the row while its last character may begin a stop text."""
    asked = {"model": "demo", "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    tokens = gateway.post("/v1/completions", {**asked, "logprobs": 0}).json["choices"][0][
        "logprobs"]["tokens"]
    at = next(i for i in range(1, 20) if tokens[i] not in tokens[:i] and tokens[i].isascii())
    asked |= {"stop_token_ids": [ord(tokens[at])], "stop": [f"{tokens[at - 1]}~~"]}
    whole = gateway.post("/v1/completions", asked).json["choices"][0]
    events = gateway.post("/v1/completions", {**asked, "stream": True}).events
    assert whole["text"] == "".join(tokens[:at]) and whole["finish_reason"] == "stop"
    assert "".join(each["choices"][0]["text"] for each in events) == whole["text"]


def test_the_end_of_a_row_may_have_text_without_a_token():
    from sluice_client.gateway.completions import _events, _Job
    from sluice_client.results import Generation

    class Streams:
        class client:
            @staticmethod
            async def stream(*_, **__):
                yield Generation("Yes", [5], [-0.5], "")
                yield Generation("..", [], [], "stop", prompt_tokens=3)

    job = _Job("m", ["a"], 1, 9, {}, True, False, False, lambda size: None)

    def choice(index, part):
        return {"index": index, "text": part.text, "finish_reason": job.finish_reason(part)}

    async def run():
        return [each["choices"][0] async for each in _events(Streams, job, {}, choice, {"text": ""})
                if each != "[DONE]"]

    shown = [(each["text"], each["finish_reason"]) for each in asyncio.run(run())]
    assert shown == [("Yes", None), ("..", None), ("", "stop")]


def test_offsets_of_tokens_count_characters():
    from sluice_client.gateway.completions import _Place, _Token

    place, offsets = _Place(), []
    for piece in (b"\xc3", b"\xa9", b"!", b" \xe2", b"\x82\xac", b"a"):
        offsets.append(place.offset)
        place.move(_Token(0, 0, piece))
    assert offsets == [0, 0, 1, 2, 3, 4] and place.offset == len("é! €a")


def test_a_top_p_of_zero_takes_the_most_likely_token(gateway):
    asked = {"model": "demo", "prompt": "In the", "max_tokens": 8}
    greedy = gateway.post("/v1/completions", {**asked, "temperature": 0}).json["choices"]
    assert gateway.post("/v1/completions", {**asked, "top_p": 0}).json["choices"] == greedy
    assert gateway.post("/v1/completions", {**asked, "temperature": 1e-7}).json["choices"] == greedy


def test_a_path_without_its_prefix_names_the_whole_path(gateway):
    for path in ("/embeddings", "/chat/completions"):
        refused = gateway.post(path, {})
        assert refused.status == 404 and f"use /v1{path} " in refused.json["error"]["message"]


def test_calls_are_counted_and_timed_by_route(demo):
    with Gateway(demo) as gateway:
        for body, count in (({"prompt": "a", "max_tokens": 1}, 2), ({}, 3)):
            for _ in range(count):
                gateway.post("/v1/completions", {"model": "demo", **body})
        samples = {
            'sluice_gateway_requests_total{code="200",route="/v1/completions"}': 2,
            'sluice_gateway_requests_total{code="400",route="/v1/completions"}': 3,
            'sluice_gateway_request_duration_seconds_count{route="/v1/completions"}': 5,
        }
        # A call is counted after its answer was sent.
        wait_until(lambda: {each: gateway.metric(each) for each in samples} == samples)
        assert gateway.metric(
            'sluice_gateway_request_duration_seconds_sum{route="/v1/completions"}') > 0


def test_each_call_is_logged_on_request(demo):
    gateway = Gateway(demo, "--access-log")
    gateway.post("/v1/completions", {"model": "demo", "prompt": "a"}, **{"x-request-id": "one"})
    gateway.post("/v1/completions", {"model": "demo"}, **{"x-request-id": "two"})
    _, output = gateway.stop()
    lines = [line for line in output.splitlines() if "POST" in line]
    assert [re.sub(r"\d+\.\d ms", "T", line.partition(": ")[2]) for line in lines] == [
        '127.0.0.1 "POST /v1/completions" 200 T request_id=one',
        '127.0.0.1 "POST /v1/completions" 400 T request_id=two']


def test_fields_that_the_documents_list_as_not_served_are_refused(gateway):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for field, value in {
        "tools": [tool], "functions": [tool["function"]], "tool_choice": "required",
        "response_format": {"type": "json_object"}, "reasoning_effort": "low",
        "modalities": ["text", "audio"], "audio": {"voice": "a"}, "web_search_options": {},
        "guided_json": {}, "guided_regex": "a", "guided_choice": ["a"], "guided_grammar": "a",
        "structured_outputs": {}, "chat_template": "a", "chat_template_kwargs": {},
        "continue_final_message": True, "add_generation_prompt": True, "echo": True,
        "use_beam_search": True, "length_penalty": 1.5,
    }.items():
        refused = gateway.post("/v1/chat/completions", {
            "model": "demo", "messages": [{"role": "user", "content": "a"}], field: value})
        assert refused.status == 400 and refused.json["error"]["param"] == field, refused.body
        error = refused.json["error"]
        assert error["type"] == "invalid_request_error" and error["code"] is None
        if field in ("tools", "functions", "tool_choice", "response_format"):
            assert f"{field} is not supported; leave it out, or send " in error["message"]
            assert "in a message, and " in error["message"], "what to do instead"
    for field, value in {"best_of": 2, "echo": True, "suffix": "a", "prompt_logprobs": 1}.items():
        refused = gateway.post("/v1/completions", {"model": "demo", "prompt": "a", field: value})
        assert refused.status == 400 and refused.json["error"]["param"] == field, refused.body
    for message in ({"role": "tool", "content": "a", "tool_call_id": "b"},
                    {"role": "function", "content": "a", "name": "f"},
                    *({"role": "user", "content": [{"type": part}]}
                      for part in ("image_url", "input_audio", "file"))):
        refused = gateway.post("/v1/chat/completions", {"model": "demo", "messages": [message]})
        assert refused.status == 400, refused.body
    for path in ("/v1/responses", "/v1/conversations", "/v1/files", "/v1/batches",
                 "/v1/fine_tuning/jobs", "/v1/moderations", "/v1/images/generations",
                 "/v1/audio/transcriptions", "/v1/assistants", "/v1/realtime", "/detokenize"):
        refused = gateway.post(path, {})
        assert refused.status == 404, path
        error = refused.json["error"]
        assert error["type"] == "invalid_request_error" and error["param"] is None
        assert f"{path!r} is not a path of this gateway" in error["message"]
        assert len(error["message"]) < 250 and "; GET / lists all of them" in error["message"]
    unlike = gateway.get("/api/generate").json["error"]["message"]
    assert "Paths are /v1/chat/completions, /v1/embeddings, /v1/rerank;" in unlike
    near = gateway.post("/v1/embedings", {}).json["error"]["message"]
    assert "Paths are /v1/embeddings," in near
    paths = gateway.get("/").json["paths"]
    assert {"/v1/chat/completions", "/v2/models/{model}/infer", "/embed"} <= set(paths)
    for path in ("/v1/responses", "/v1/responses/resp_1"):
        assert "; use /v1/chat/completions instead of /v1/responses. Paths are " in (
            gateway.get(path).json["error"]["message"])
    assert "instead of" not in gateway.get("/v1/responsesque").json["error"]["message"]


def test_a_call_with_tools_is_refused_for_its_tools_before_its_messages(gateway):
    """The history of a call with tools has roles that are not served either."""
    refused = gateway.post("/v1/chat/completions", {
        "model": "demo", "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [{"role": "tool", "content": "a", "tool_call_id": "b"}]})
    assert refused.status == 400 and refused.json["error"]["param"] == "tools"


def test_streamed_logprobs_have_the_tokens_of_the_whole_answer(client):
    asked = {"model": "demo", "prompt": PROMPT, "max_tokens": 12, "seed": 3, "logprobs": 3}
    whole = client.completions.create(**asked).choices[0].logprobs
    parts = [each.choices[0].logprobs for each in client.completions.create(**asked, stream=True)]
    assert parts.pop() is None  # of the event with finish_reason
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [value for part in parts for value in getattr(part, name) or []]
        assert joined == getattr(whole, name), name


def test_logprobs_of_a_model_without_a_tokenizer_name_ids(daemon, tmp_path):
    model = TinyModel(tmp_path / "ids", seed=1)
    with Gateway(daemon(models=[("ids", model.directory)])) as gateway:
        answer = gateway.post("/v1/completions", {
            "model": "ids", "prompt": [1, 2, 3], "max_tokens": 2, "logprobs": 1}).json
    logprobs = answer["choices"][0]["logprobs"]
    assert all(re.fullmatch(r"token_id:\d+", each) for each in logprobs["tokens"])
    assert [list(each) for each in logprobs["top_logprobs"]] != [[], []]


def test_an_answer_without_tokens_ends_by_its_length(client):
    asked = {"model": "demo", "max_tokens": 0}
    for stream in (False, True):
        for create, prompt in (
            (client.completions.create, {"prompt": "And"}),
            (client.chat.completions.create, {"messages": [{"role": "user", "content": "And"}]}),
        ):
            answer = create(**asked, **prompt, stream=stream)
            last = list(answer)[-1] if stream else answer
            assert last.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["", [""], [], ["", "z"]])
def test_an_empty_stop_is_none(client, stop):
    asked = {"model": "demo", "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    expected = client.completions.create(**asked, stop="z" if "z" in stop else None)
    assert client.completions.create(**asked, stop=stop).choices[0].text == (
        expected.choices[0].text)


@pytest.mark.parametrize(
    "prompt, options",
    [
        ("a" * 257, {}),  # more tokens than positions
        ("a" * 250, {"max_tokens": 30}),
        ("a" * 100_000, {}),
        ("a" * 100_000, {"truncate": "left"}),  # too long even to be cut
        ("a" * 256, {"stream": True}),
    ],
)
def test_a_prompt_that_is_too_long_has_the_code_of_openai(gateway, prompt, options):
    refused = gateway.post("/v1/completions", {
        "model": "demo", "prompt": prompt, "max_tokens": 1, **options})
    assert refused.status == 400, refused.body
    assert refused.json["error"]["code"] == "context_length_exceeded", refused.body


@pytest.mark.parametrize("most", [257, 2**40])
def test_max_tokens_above_the_length_of_the_model_names_it(gateway, most):
    refused = gateway.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": most})
    error = refused.json["error"]
    assert refused.status == 400 and error["code"] == "context_length_exceeded", refused.body
    assert f"max_tokens is {most}; the model's max_positions is 256" in error["message"]


def test_get_of_the_root_names_the_page_of_the_api(gateway):
    answer = gateway.get("/")
    assert answer.status == 200 and "docs/http.md" in answer.json["message"]


def test_other_faults_keep_the_reason_of_the_daemon(gateway):
    refused = gateway.post("/v1/completions", {"model": "demo", "prompt": "a", "top_p": 7})
    assert refused.json["error"]["code"] == "parameter", refused.body
    refused = gateway.post("/v1/embeddings", {"model": "demo", "input": "a" * 999})
    assert refused.json["error"]["code"] == "context_length_exceeded"


def test_errors_have_the_shape_of_the_other_apis(gateway):
    refused = gateway.post("/v1/rerank", {"model": "demo", "query": "a", "documents": []})
    assert refused.status == 400 and refused.json == {"message": "documents is empty"}
    refused = gateway.post("/v2/models/none/infer", {"inputs": []})
    assert refused.status in (400, 404) and set(refused.json) == {"error"}
    refused = gateway.get("/v2/nothing").json
    assert set(refused) == {"error"}
    assert refused["error"].startswith("'/v2/nothing' is not a path of this gateway. Paths are")
    refused = gateway.get("/v1/completions")
    assert refused.status == 405
    assert refused.json["error"]["message"] == (
        "GET is not allowed for '/v1/completions'; use POST")
