"""Tests the parts of the comparison with other servers that run without those servers."""

import asyncio
import contextlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, free_port
from infer import ids_inputs, infer
from waiting import PATIENCE_S

PEERS = ROOT / "loadtest" / "peers"
sys.path += [str(PEERS), str(PEERS / "serve")]

import answers  # noqa: E402
import batcher  # noqa: E402
import checkpoint  # noqa: E402
import contest  # noqa: E402
import oip  # noqa: E402
import phases  # noqa: E402
import servers  # noqa: E402
import summary  # noqa: E402
import workloads  # noqa: E402

SMALL = checkpoint.Shape(vocab=50, hidden=16, intermediate=24, layers=2, heads=4, kv_heads=2,
                         positions=48)


@pytest.mark.parametrize("lengths, max_rows, max_padding, expected", [
    ([5], 8, 0.0, [0]),
    ([5, 5, 5], 2, 0.0, [0, 1]),
    ([4, 5, 4], 8, 0.0, [0, 2]),
    ([10, 9, 2, 10], 8, 0.1, [0, 1, 3]),
    ([2, 100], 8, 0.25, [0]),
    ([2, 100], 8, 1.0, [0, 1]),
    ([], 8, 0.25, []),
])
def test_batch_is_the_first_prompt_and_all_that_fit(lengths, max_rows, max_padding, expected):
    assert batcher.choose(lengths, max_rows, max_padding) == expected


def test_no_batch_is_padded_more_than_allowed():
    for seed in range(200):
        random = np.random.default_rng(seed)
        lengths = random.integers(1, 257, random.integers(1, 40)).tolist()
        rows, padding = int(random.integers(1, 17)), float(random.uniform(0, 0.6))
        chosen = batcher.choose(lengths, rows, padding)
        of = [lengths[index] for index in chosen]
        assert chosen[0] == 0 and chosen == sorted(set(chosen)) and len(chosen) <= rows, seed
        assert len(of) == 1 or 1 - sum(of) / (len(of) * max(of)) <= padding + 1e-12, seed


def test_a_batch_is_partitioned_by_length():
    assert batcher.partition([9, 2, 10, 2, 1], 8, 0.1) == [[0, 2], [1, 3], [4]]
    for seed in range(50):
        lengths = np.random.default_rng(seed).integers(1, 257, seed).tolist()
        parts = batcher.partition(lengths, 4, 0.25)
        assert sorted(sum(parts, [])) == list(range(seed)), seed


def test_padding_is_on_the_right():
    rows, lengths = batcher.padded([np.array([7, 8], np.int32), np.array([9], np.int32)])
    assert rows.tolist() == [[7, 8], [9, 0]] and lengths.tolist() == [2, 1]
    assert (rows.dtype, lengths.dtype) == (np.int64, np.int32)


def echo(batch):
    return [batcher.Answer(each.prompt.tolist(), []) for each in batch]


def test_a_failed_batch_is_reported_and_a_cancelled_prompt_is_not_computed():
    computed = []

    def run(batch):
        computed.append([len(each.prompt) for each in batch])
        if 3 in computed[-1]:
            raise RuntimeError("engine")
        return echo(batch)

    async def scenario():
        made = batcher.Batcher(run, max_rows=1, max_padding=0)
        prompts = [np.ones(length, np.int32) for length in (3, 4, 5)]
        calls = [asyncio.create_task(made.answer(prompt, 1)) for prompt in prompts]
        await asyncio.sleep(0)  # All three are waiting, and none is running.
        calls[1].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    failed, cancelled, answered = asyncio.run(scenario())
    assert str(failed) == "engine" and isinstance(cancelled, asyncio.CancelledError)
    assert answered.tokens == [1] * 5
    assert computed == [[3], [5]]


def request(**changes):
    made = oip.pb.ModelInferRequest(raw_input_contents=[np.array([5, 6], "<i4").tobytes()])
    tensor = {"name": "input_ids", "datatype": "INT32", "shape": [1, 2]} | changes
    made.inputs.add(**tensor)
    return made


def test_minimal_server_reads_requests_of_sluice_load():
    assert oip.prompt_of(request()).tolist() == [5, 6]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "tokens"},
        {"datatype": "INT64"},
        {"shape": [2]},
        {"shape": [1, 3]},
        {"shape": [2, 1]},
    ],
)
def test_minimal_server_refuses_other_inputs(changes):
    with pytest.raises(ValueError, match="input_ids"):
        oip.prompt_of(request(**changes))


def test_minimal_server_answers_and_answers_are_compared(tmp_path):
    """The server starts, becomes ready, is suspended and resumed, answers, and stops."""
    script = tmp_path / "echo.py"
    script.write_text(
        f"import sys\nsys.path.append({str(PEERS / 'serve')!r})\n"
        "import oip\nfrom batcher import Answer\n"
        "async def answer(prompt, max_tokens):\n"
        "    return Answer(prompt.tolist()[:max_tokens], [-0.5] * max_tokens)\n"
        "oip.serve(answer, sys.argv[1])\n"
    )
    address = f"127.0.0.1:{free_port()}"
    server = servers.Server(
        [sys.executable, str(script), address], address, [0], 1, tmp_path / "log"
    )
    try:
        server.wait_ready(PATIENCE_S)
        server.suspend()
        server.resume()
        asked = answers.prompts(1, (3, 9), 50)
        found = answers.ask_all(address, asked, 2)
        assert server.cpu_seconds() > 0
    finally:
        server.stop()
    expected = [answers.Answer(prompt[0, :2].tolist(), [-0.5, -0.5]) for prompt in asked]
    assert answers.differences(expected, found) == []


def test_the_reason_why_a_server_ended_is_reported(tmp_path):
    server = servers.Server([sys.executable, "-c", "import sys; sys.exit('no such weights')"],
                            f"127.0.0.1:{free_port()}", [0], 1, tmp_path / "log")
    with pytest.raises(servers.NotStarted, match="ended with 1: no such weights"):
        server.wait_ready(PATIENCE_S)
    server.stop()


@pytest.mark.parametrize("found, what", [
    (answers.Answer([1, 2], [-1.0, -2.0]), ""),
    (answers.Answer([1, 2], [-1.0, -2.001]), ""),
    (answers.Answer([1, 2], None), ""),
    (answers.Answer([1, 3], [-1.0, -2.0]), "tokens"),
    (answers.Answer([1], None), "tokens"),
    (answers.Answer([1, 2], [-1.0, -2.1]), "log-probability"),
])
def test_answers_differ_by_tokens_or_by_a_large_log_probability(found, what):
    said = answers.difference(answers.Answer([1, 2], [-1.0, -2.0]), found)
    assert (what in said) and bool(said) == bool(what)


def test_the_checkpoint_is_the_same_for_the_same_seed(tmp_path):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        checkpoint.write(tmp_path / name, SMALL, seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b and a != c
    shape, tensors = checkpoint.read(tmp_path / "a")
    assert shape == SMALL and tensors["lm_head.weight"].shape == (50, 16)


def test_the_daemon_serves_the_checkpoint_and_no_answer_ends_early(tmp_path, daemon):
    checkpoint.write(tmp_path / "llama", SMALL, 5)
    started = daemon(models=(("llama", tmp_path / "llama"),))
    with started.client() as client:
        for seed in range(8):
            prompt = np.random.default_rng(seed).integers(3, SMALL.vocab, 1 + seed).tolist()
            answer = infer(client, ids_inputs([prompt]), ["sequence_length", "logits"], "llama",
                           max_tokens=40)
            assert answer["sequence_length"][0, 0] == 40, seed
            logits = answer["logits"][0]
            assert logits[checkpoint.EOS] == 0 < logits.max(), seed


def test_the_trace_is_scaled_down_to_the_model(tmp_path):
    source, made = tmp_path / "source.csv", tmp_path / "made.csv"
    source.write_text(
        "arrival_s,input_tokens,output_tokens\n0.0,1,0\n1.5,8192,16\n2.0,33,17\n9.0,5,5\n"
    )
    workloads.write_trace(source, made, rows=3)
    assert made.read_text().split() == [
        "arrival_s,input_tokens,output_tokens", "0.0,1,1", "1.5,256,1", "2.0,2,2"]


def test_rounds_rotate_so_that_each_server_is_first_in_turn():
    orders = phases.interleaved(["a", "b", "c"], 4)
    assert [order[0] for order in orders] == ["a", "b", "c", "a"]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_phases_fill_the_budget_and_have_a_minimum_length():
    assert phases.phase_seconds(400, 40) == 10 - phases.WARM_UP_S - phases.OVERHEAD_S
    assert phases.phase_seconds(10, 40) == 2


def test_each_phase_has_its_own_seed_and_only_open_loops_have_deadlines():
    workload = workloads.WORKLOADS[0]
    rounds = [phases.phases_of(workload, 8, 10, turn) for turn in range(5)]
    seeds = [phase.seed for each in rounds for phase in each]
    assert len(set(seeds)) == len(seeds)
    assert [("--deadline-ms" in phase.load, phase.name) for phase in rounds[0]] == [
        (False, "closed"), (True, "own"), (True, "common")]


def figures(answered, goodput, p50, verdict="VALID", reasons=()):
    return {
        "answers_per_cpu_s": answered,
        "offered_per_s": 10.0,
        "answered_per_s": answered,
        "goodput_per_s": goodput,
        "p50_ms": p50,
        "p99_ms": 2 * p50,
        "verdict": verdict,
        "reasons": list(reasons),
    }


def rounds(*goodputs, answered=10.0):
    return [{"closed": figures(answered, 0, 5), "own": figures(answered, goodput, 5),
             "common": figures(answered, 1, 5, "INVALID", [f"{goodput} calls, under 20"])}
            for goodput in goodputs]


def test_the_summary_has_medians_spreads_and_ratios():
    made = summary.of_workload(
        {
            "sluice packed": rounds(6, 9, 12),
            "slow": rounds(4, 3, 2),
            "dead": [{name: figures(0, 0, 0) for name in ("closed", "own", "common")}],
        }
    )
    assert made["arms"]["sluice packed"]["goodput_per_s"] == {"median": 9, "min": 6, "max": 12}
    assert made["arms"]["slow"]["common"]["invalid"] == 3
    assert made["sluice_over"]["slow"] == {
        "throughput": 1, "answers per CPU second": 1, "goodput": 3, "goodput at the common load": 1}
    assert set(made["sluice_over"]["dead"].values()) == {None}
    assert "p50_ms" not in made["arms"]["dead"]["own"]


def test_the_table_names_servers_left_out_and_invalid_phases():
    measured = {"sluice packed": rounds(6, 9), "peer": rounds(4, 3)}
    report = {
        "date": "2026-01-01",
        "commit": "c",
        "model": "m",
        "host": {"processor": "p", "processors": 2},
        "options": {
            "server_processors": [0],
            "client_processors": [1],
            "threads": 1,
            "rounds": 2,
            "seconds": 3.0,
        },
        "arms": [
            {
                "name": "peer",
                "workload": "w",
                "settings": "tuned",
                "versions": {"lib": "1.2"},
                "agreed_tokens": 8,
            }
        ],
        "left_out": [{"name": "gone", "workload": "w", "reason": "no wheel"}],
        "workloads": [
            {
                "name": "w",
                "title": "W",
                "objective_ms": 5,
                "concurrency": 4,
                "rounds": measured,
                "summary": summary.of_workload(measured),
            }
        ],
    }
    text = summary.text(report)
    for part in (
        "| peer | w | lib 1.2 | tuned |",
        "- gone (w): no wheel",
        "- 4 phases are INVALID: .. calls, under ..",
        "| peer | 1.00 | 1.00 | 2.14 | 1.00 |",
    ):
        assert part in text


def test_the_help_of_the_comparison_names_its_options():
    said = subprocess.run(
        [sys.executable, PEERS / "run.py", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "--minutes" in said and "--venvs" in said


class Recorded:
    """A contender that records when it runs."""

    def __init__(self, name, told):
        self.name, self.told = name, told

    def suspend(self):
        self.told.append(f"{self.name} stops")

    def resume(self):
        self.told.append(f"{self.name} runs")


def test_contenders_run_in_turn_and_failed_ones_are_left_out():
    told, left_out = [], {}
    started = {name: Recorded(name, told) for name in "abc"}

    def work(name, contender):
        told.append(f"{name} works")
        if name == "b" and "c works" in told:
            raise contest.Failed("it fell")

    for order in (["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]):
        contest.in_turn(order, started, left_out, work)
    assert told == [f"{name} {does}" for name in "abcbcaca" for does in ("runs", "works", "stops")]
    assert list(started) == ["a", "c"] and left_out == {"b": "it fell"}


def test_contender_that_does_not_start_is_reported():
    told = []

    def broken():
        raise servers.NotStarted("no interpreter")

    makers = {"a x": lambda: Recorded("a", told), "b x": broken, "c y": lambda: Recorded("c", told)}
    started, of, left_out = contest.start_all(makers, ["x"], lambda it: {"name": it.name})
    assert list(started) == ["a x"] and told == ["a stops"]
    assert of == {"a x": {"name": "a"}} and left_out == {"b x": "no interpreter"}


def test_library_fails_if_its_process_ends(tmp_path):
    script = tmp_path / "peer.py"
    script.write_text("print('{\"batch\": 3}', flush=True)\nprint(input())\n")
    with contextlib.ExitStack() as stack:
        library = contest.Library(sys.executable, script, [], 0, tmp_path / "log", stack)
        assert library.told == {"batch": 3}
        assert library.ask(seconds=1) == {"seconds": 1}
        with pytest.raises(contest.Failed, match="ended or wrote no valid answer"):
            library.ask(seconds=2)
    with contextlib.ExitStack() as stack:
        script.write_text("raise SystemExit('it has no such engine')")
        with pytest.raises(servers.NotStarted, match="no such engine"):
            contest.Library(sys.executable, script, [], 0, tmp_path / "log", stack)
