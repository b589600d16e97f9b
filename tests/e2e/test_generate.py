"""Tests streamed generation with tritonclient's unchanged streaming API."""

import json
import signal
import subprocess

import numpy as np
import pytest
from conftest import SLUICE
from infer import ids_inputs, infer, text_inputs
from streaming import Stream, arrays, is_final, joined, stream
from test_invariance import same
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, wait_until

PROMPT = "In the beginning"
EOS = 257


def unary(daemon, inputs, outputs=None, **parameters):
    with daemon.client() as client:
        return infer(client, inputs, outputs, **parameters)


def held_pages(daemon):
    return daemon.metric("sluice_kv_pages", state="held")


def test_the_streamed_responses_join_to_the_unary_answer(daemon, gate):
    """A step stops at a gate until the earlier tokens have been received."""
    held_step = gate("step")
    server = daemon(faults=f"before_replay@r:delay=1*20;before_replay@r:{held_step}*1")
    wanted = [
        "output_ids",
        "sequence_length",
        "logprobs",
        "finish_reason",
        "text_output",
        "top_ids",
        "top_logprobs",
        "logits",
        "prompt_logprobs",
    ]
    request = {"max_tokens": 60, "num_top_logprobs": 3, "temperature": "0.9", "seed": 11}
    with Stream(server) as one:
        one.send(text_inputs(PROMPT), "r", wanted, **request)
        pieces = [one.next()]
        assert not is_final(pieces[0])
        held_step.open()
        pieces += one.answer()
    assert [is_final(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    for piece in pieces:
        assert piece.get_response().id == "r" and piece.get_response().model_name == "demo"
        tokens = piece.as_numpy("output_ids").shape[1]
        assert piece.as_numpy("sequence_length")[0, 0] == tokens
        assert piece.as_numpy("top_ids").shape == (1, tokens, 3)
        piece.as_numpy("text_output")[0, 0].decode()  # No response ends within a character.
    assert all(piece.as_numpy("finish_reason")[0, 0] == b"" for piece in pieces[:-1])
    assert same(joined(pieces), unary(server, text_inputs(PROMPT), wanted, **request))


def test_outputs_of_the_prompt_come_with_the_last_response(demo):
    with Stream(demo) as one:
        one.send(text_inputs(PROMPT), outputs=["output_ids", "prompt_logprobs"], max_tokens=20)
        pieces = [arrays(piece) for piece in one.answer()]
    assert all(piece.keys() == {"output_ids"} for piece in pieces[:-1])
    assert pieces[-1].keys() == {"output_ids", "prompt_logprobs"}


def test_an_empty_final_response_is_sent_on_request(demo):
    with Stream(demo) as one:
        one.send(text_inputs(PROMPT), "r", max_tokens=8, empty_final=True)
        pieces = one.answer()
    assert [is_final(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert not pieces[-1].get_response().outputs and pieces[-1].get_response().id == "r"
    assert pieces[-2].as_numpy("finish_reason")[0, 0] == b"length"
    assert same(joined(pieces), unary(demo, text_inputs(PROMPT), max_tokens=8))


def test_many_requests_share_a_stream(demo):
    prompts = [f"{PROMPT}{'!' * i}" for i in range(24)]
    with Stream(demo) as one:
        for i, prompt in enumerate(prompts):
            one.send(text_inputs(prompt), f"{i:02}", max_tokens=4 + i)
        answers = one.answers_of(len(prompts))
    for i, (prompt, pieces) in enumerate(zip(prompts, answers)):
        assert same(joined(pieces), unary(demo, text_inputs(prompt), max_tokens=4 + i))


def test_rows_of_one_request_stream_concurrently(demo):
    rows = [[256, *b"And"], [256, *b"The children of Israel"], [256]]
    with Stream(demo) as one:
        one.send(ids_inputs(rows), max_tokens=20, stop_token_ids="[32]")
        pieces = [arrays(piece) for piece in one.answer()]
    whole = unary(demo, ids_inputs(rows), max_tokens=20, stop_token_ids="[32]")
    for row in range(len(rows)):
        ids = [token for piece in pieces
               for token in piece["output_ids"][row, : piece["sequence_length"][row, 0]]]
        assert ids == whole["output_ids"][row, : whole["sequence_length"][row, 0]].tolist()
        assert b"".join(piece["text_output"][row, 0] for piece in pieces) == \
            whole["text_output"][row, 0]


def test_error_ends_its_request_but_not_the_stream(demo):
    with Stream(demo) as one:
        one.send(text_inputs(PROMPT), max_tokens=200, timeout=1)
        with pytest.raises(InferenceServerException):
            one.answer()
        one.send(text_inputs(PROMPT), max_tokens=3)
        assert joined(one.answer())["sequence_length"][0, 0] == 3


def test_cancelling_a_stream_frees_its_pages(daemon, gate):
    # The gate holds the first request in the middle of its answer until it is cancelled.
    middle = gate("middle")
    server = daemon(faults=f"deliver@0:delay=0*3;deliver@0:{middle}*1;deliver@0:delay=20")
    with Stream(server) as one:
        for i in range(8):
            one.send(text_inputs(f"{i} {PROMPT}"), str(i), max_tokens=230)
        one.next()
        middle.await_met()
        assert held_pages(server) > 0
        one.cancel()
        middle.open()
    # A request that the daemon reads only after the cancellation is never admitted.
    wait_until(lambda: server.metric("sluice_requests_total") ==
               server.metric("sluice_admitted_total"))
    wait_until(lambda: held_pages(server) == 0)
    assert server.metric("sluice_requests_total", code="CANCELLED") > 0
    assert server.metric("sluice_sequences_running") == 0


class TestEnds:
    """Parameters that end or prolong an answer, which act the same on unary and streamed calls."""

    def ask(self, demo, **parameters):
        whole = unary(demo, text_inputs(PROMPT), **parameters)
        assert same(stream(demo, text_inputs(PROMPT), **parameters), whole)
        return (whole["text_output"][0, 0].decode(), whole["output_ids"][0].tolist(),
                whole["finish_reason"][0, 0].decode())

    def test_a_stop_text_cuts_the_answer(self, demo):
        text, ids, _ = self.ask(demo, max_tokens=60)
        stop = text[30:34]
        cut, cut_ids, reason = self.ask(demo, max_tokens=60, stop=json.dumps(["\x00", stop]))
        assert cut == text[: text.index(stop)] and reason == "stop"
        assert cut_ids == ids[: text.index(stop) + len(stop)]
        assert self.ask(demo, max_tokens=60, stop=stop) == (cut, cut_ids, reason)

    def test_a_stop_token_ends_the_answer(self, demo):
        _, ids, _ = self.ask(demo, max_tokens=30)
        _, cut, reason = self.ask(demo, max_tokens=30, stop_token_ids=json.dumps([ids[9]]))
        assert cut == ids[: ids.index(ids[9])] and reason == "stop"

    def test_no_answer_ends_before_min_tokens(self, demo):
        text, ids, _ = self.ask(demo, max_tokens=30)
        _, later, _ = self.ask(demo, max_tokens=30, min_tokens=20,
                               stop_token_ids=json.dumps([ids[4]]))
        assert len(later) >= 20 and ids[4] not in later[:20]
        unstopped, _, _ = self.ask(demo, max_tokens=30, min_tokens=30, stop=text[5])
        assert unstopped == text

    def test_eos_ends_the_answer_unless_it_is_ignored(self, demo):
        likely = json.dumps({EOS: 100})
        assert self.ask(demo, max_tokens=6, logit_bias=likely) == ("", [], "stop")
        _, ids, reason = self.ask(demo, max_tokens=6, logit_bias=likely, ignore_eos=True)
        assert ids == [EOS] * 6 and reason == "length"
        _, ids, reason = self.ask(demo, max_tokens=6, logit_bias=likely, min_tokens=4)
        assert len(ids) == 4 and EOS not in ids and reason == "stop"

    def test_banned_tokens_never_and_only_allowed_tokens_appear(self, demo):
        _, ids, _ = self.ask(demo, max_tokens=20)
        _, others, _ = self.ask(demo, max_tokens=20, logit_bias=json.dumps({ids[0]: None}))
        assert ids[0] not in others
        text, _, _ = self.ask(demo, max_tokens=20, allowed_token_ids="[97, 98, 99]", seed=3,
                              temperature="2")
        assert set(text) <= set("abc") and len(set(text)) > 1

    @pytest.mark.parametrize(
        "penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"]
    )
    def test_penalties_change_greedy_answers(self, demo, penalty):
        _, ids, _ = self.ask(demo, max_tokens=40)
        _, others, _ = self.ask(demo, max_tokens=40, **{penalty: "1.8"})
        assert others != ids


@pytest.mark.parametrize("parameters, message", [
    ({"repetition_penalty": "0"}, "repetition_penalty"),
    ({"presence_penalty": "101"}, "presence_penalty"),
    ({"logit_bias": '{"258": 1}'}, "logit_bias"),
    ({"logit_bias": "[" * 100000}, "logit_bias"),
    ({"allowed_token_ids": "[]x"}, "allowed_token_ids"),
    ({"stop_token_ids": json.dumps(list(range(65)))}, "stop_token_ids"),
    ({"stop": '[""]'}, "stop"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"allowed_token_ids": "[97]", "logit_bias": '{"97": null}'}, "allowed_token_ids"),
])
def test_the_error_names_the_invalid_parameter(demo, parameters, message):
    with demo.client() as client:
        with pytest.raises(InferenceServerException) as error:
            infer(client, text_inputs("a"), **parameters)
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert message in error.value.message()


def command(demo, *arguments):
    return [SLUICE, "generate", "--server", demo.grpc, "--verbose", *arguments]


def test_the_command_prints_the_unary_answer(demo):
    text = unary(demo, text_inputs(PROMPT), max_tokens=50)["text_output"][0, 0].decode()
    run = subprocess.run(command(demo, "--text", "-", "--max-tokens", "50"), input=PROMPT,
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    assert run.stdout == text + "\n"
    assert run.stderr.startswith("50 tokens in ") and "finish length" in run.stderr

    lines = subprocess.run(command(demo, "--text", PROMPT, "--max-tokens", "50", "--json"),
                           capture_output=True, text=True, timeout=PATIENCE_S).stdout.splitlines()
    assert "".join(json.loads(line)["outputs"]["text_output"] for line in lines) == text


def test_the_command_has_flags_for_the_parameters_of_generation(demo):
    run = subprocess.run(
        command(demo, "--text", PROMPT, "--max-tokens", "90", "--stop", "[never]", "--stop", "the",
                "--min-tokens", "12", "--repetition-penalty", "1.1", "--logit-bias", "0=ban,1=-5"),
        capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    assert "the" not in run.stdout[12:]
    wrong = subprocess.run(command(demo, "--text", PROMPT, "--min-p", "2"), capture_output=True,
                           text=True, timeout=PATIENCE_S)
    assert wrong.returncode == 1 and wrong.stdout == ""
    assert "INVALID_ARGUMENT" in wrong.stderr and "min_p" in wrong.stderr


def test_ctrl_c_cancels_and_keeps_the_text_so_far(daemon, gate):
    middle = gate("middle")
    server = daemon(faults=f"deliver@slow:delay=0*3;deliver@slow:{middle}*1;deliver@slow:delay=20")
    text = unary(server, text_inputs(PROMPT), max_tokens=240)["text_output"][0, 0].decode()
    with subprocess.Popen(command(server, "--text", PROMPT, "--max-tokens", "240", "--id", "slow"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as run:
        begin = run.stdout.read(1)  # communicate() skips buffered bytes; bufsize is 0.
        middle.await_met()
        run.send_signal(signal.SIGINT)
        rest, summary = run.communicate(timeout=PATIENCE_S)
    middle.open()
    assert run.returncode == 130
    assert b"interrupted" in summary
    shown = (begin + rest).decode()
    assert shown.endswith("\n") and text.startswith(shown[:-1]) and shown[:-1] != text
    wait_until(lambda: held_pages(server) == 0)
    assert server.metric("sluice_requests_total", code="CANCELLED") == 1
