"""Tests the daemon with tritonclient, an unmodified client of the Open Inference Protocol."""

import queue

import numpy as np
import pytest
from infer import ids_inputs, infer, tensor, text_inputs
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S

DEFAULT_OUTPUTS = ["output_ids", "sequence_length", "logprobs", "finish_reason", "text_output"]


def test_server_and_model_are_described(demo):
    with demo.client() as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("demo") and client.is_model_ready("demo", "1")
        assert not client.is_model_ready("absent")
        assert "statistics" in client.get_server_metadata().extensions

        metadata = client.get_model_metadata("demo")
        assert metadata.versions == ["1"]
        assert [output.name for output in metadata.outputs] == DEFAULT_OUTPUTS
        assert {i.name for i in metadata.inputs} == {"input_ids", "input_lengths", "text_input"}
        assert all(each.shape[0] == -1 for each in [*metadata.inputs, *metadata.outputs])

        config = client.get_model_config("demo").config
        assert config.name == "demo" and config.max_batch_size > 0
        assert all(each.optional for each in config.input)
        assert [m.name for m in client.get_model_repository_index().models] == ["demo"]


def test_text_is_answered_with_the_default_outputs(demo):
    with demo.client() as client:
        answer = infer(client, text_inputs("And God said, "), max_tokens=24)
    assert list(answer) == DEFAULT_OUTPUTS
    length = answer["sequence_length"][0, 0]
    assert 1 <= length <= 24
    assert answer["output_ids"].shape == answer["logprobs"].shape == (1, length)
    assert (answer["logprobs"] <= 0).all()
    assert answer["finish_reason"][0, 0] in (b"length", b"stop")
    assert answer["text_output"][0, 0] == bytes(answer["output_ids"][0].tolist())


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["int32", "int64"])
def test_token_ids_and_text_agree(demo, dtype):
    ids = [256, *b"In the beginning"]
    with demo.client() as client:
        by_text = infer(client, text_inputs("In the beginning"), max_tokens=8)
        by_ids = infer(client, ids_inputs([ids], dtype), max_tokens=8)
    np.testing.assert_array_equal(by_ids["output_ids"], by_text["output_ids"])
    np.testing.assert_array_equal(by_ids["logprobs"], by_text["logprobs"])


def test_batched_rows_equal_single_rows(demo):
    rows = [[256, *b"And"], [256, *b"The children of Israel went"], [256]]
    with demo.client() as client:
        together = infer(client, ids_inputs(rows), max_tokens=5)
        for i, row in enumerate(rows):
            alone = infer(client, ids_inputs([row]), max_tokens=5)
            n = alone["sequence_length"][0, 0]
            assert together["sequence_length"][i, 0] == n
            for name in ("output_ids", "logprobs"):
                assert together[name][i, :n].tobytes() == alone[name][0].tobytes()


def test_requested_outputs_are_returned_in_order(demo):
    row = [256, *b"And it came to pass"]
    wanted = ["output_ids", "logprobs", "top_ids", "top_logprobs", "logits", "prompt_logprobs",
              "xsa_cos_sim", "xsa_proj_frac"]
    with demo.client() as client:
        answer = infer(client, ids_inputs([row]), wanted, num_top_logprobs=4)
    assert list(answer) == wanted
    assert answer["logits"].shape == (1, 258)
    assert answer["top_ids"].shape == answer["top_logprobs"].shape == (1, 1, 4)
    assert answer["prompt_logprobs"].shape == (1, len(row))
    assert answer["prompt_logprobs"][0, 0] == 0 and (answer["prompt_logprobs"][0, 1:] < 0).all()
    layers, heads = answer["xsa_cos_sim"].shape[1], answer["xsa_cos_sim"].shape[3]
    assert answer["xsa_proj_frac"].shape == (1, layers, len(row), heads)
    fractions = answer["xsa_proj_frac"]
    assert (fractions >= 0).all() and (fractions <= 1 + 1e-5).all()
    # The first position attends only to itself, so its output is its own value.
    np.testing.assert_allclose(fractions[0, :, 0], 1, atol=1e-5)
    logits = answer["logits"][0].astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    order = np.argsort(-logits, kind="stable")[:4]
    np.testing.assert_array_equal(answer["top_ids"][0, 0], order)
    np.testing.assert_allclose(answer["top_logprobs"][0, 0], expected[order], atol=1e-5)
    assert answer["output_ids"][0, 0] == order[0]


def test_a_request_may_score_its_prompt_without_generating(demo):
    with demo.client() as client:
        answer = infer(client, ids_inputs([[256, *b"Amen"]]), ["prompt_logprobs"], max_tokens=0)
    assert answer["prompt_logprobs"].shape == (1, 5)


def test_a_seed_makes_sampling_repeatable(demo):
    with demo.client() as client:
        def draw(seed):
            return infer(client, text_inputs("And "), max_tokens=20, temperature="0.9", top_k=50,
                         seed=seed)["output_ids"].tobytes()
        assert draw(1) == draw(1)
        assert len({draw(seed) for seed in range(6)}) > 1


@pytest.mark.parametrize("inputs, parameters, message", [
    ([tensor("input_ids", np.array([[1, 258]], np.int32), "INT32")], {}, "input_ids"),
    ([tensor("input_ids", np.array([[1, -1]], np.int32), "INT32")], {}, "input_ids"),
    ([tensor("input_ids", np.zeros((1, 257), np.int32), "INT32")], {}, "256"),
    ([tensor("input_ids", np.zeros((1, 4), np.float32), "FP32")], {}, "input_ids"),
    ([tensor("tokens", np.zeros((1, 4), np.int32), "INT32")], {}, "tokens"),
    ([], {}, "input_ids"),
    (text_inputs("a") + ids_inputs([[1]]), {}, "text_input"),
    (text_inputs("a"), {"top_k": -1}, "top_k"),
    (text_inputs("a"), {"top_p": "0"}, "top_p"),
    (text_inputs("a"), {"top_p": "nan"}, "top_p"),
    (text_inputs("a"), {"temperature": "warm"}, "temperature"),
    (text_inputs("a"), {"max_tokens": 2**62}, "max_tokens"),
    (text_inputs("a"), {"max_tokenz": 3}, "max_tokenz"),
    (text_inputs("a"), {"num_top_logprobs": 259}, "num_top_logprobs"),
])
def test_the_error_names_the_invalid_input(demo, inputs, parameters, message):
    with demo.client() as client:
        with pytest.raises(InferenceServerException) as error:
            infer(client, inputs, **parameters)
        assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
        assert message in error.value.message()
        infer(client, text_inputs("a"))  # Other requests are not affected.


@pytest.mark.parametrize("model", ["absent", "../demo"], ids=["absent", "outside-the-root"])
def test_unknown_models_are_not_found(demo, model):
    with demo.client() as client, pytest.raises(InferenceServerException) as error:
        infer(client, text_inputs("a"), model=model)
    assert error.value.status() in ("StatusCode.NOT_FOUND", "StatusCode.INVALID_ARGUMENT")


def test_an_expired_timeout_is_deadline_exceeded(demo):
    with demo.client() as client:
        with pytest.raises(InferenceServerException) as error:
            infer(client, text_inputs("And "), max_tokens=200, timeout=1)
        assert error.value.status() == "StatusCode.DEADLINE_EXCEEDED"


def test_a_stream_answers_each_request_and_reports_errors_in_its_responses(demo):
    answers = queue.Queue()
    with demo.client() as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("demo", text_inputs("And "), request_id="a",
                                  parameters={"max_tokens": 4})
        client.async_stream_infer("demo", text_inputs("And "), request_id="b",
                                  parameters={"top_k": -5})
        client.async_stream_infer("demo", text_inputs("The "), request_id="c")
        tokens, ended, errors = {"a": 0, "c": 0}, [], []
        while len(ended) + len(errors) < 3:
            result, error = answers.get(timeout=PATIENCE_S)
            if error:
                errors.append(error.message())
                continue
            response = result.get_response()
            tokens[response.id] += result.as_numpy("output_ids").shape[1]
            if response.parameters["triton_final_response"].bool_param:
                ended.append(response.id)
        client.stop_stream()
    assert len(errors) == 1 and "top_k" in errors[0]
    assert sorted(ended) == ["a", "c"]
    assert tokens == {"a": 4, "c": 1}


def test_statistics_count_successes(demo):
    with demo.client() as client:
        def successes():
            return (
                client.get_inference_statistics("demo").model_stats[0].inference_stats.success.count
            )
        before = successes()
        for _ in range(3):
            infer(client, text_inputs("And "))
        assert successes() == before + 3
