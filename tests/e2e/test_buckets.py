"""Tests the buckets of real daemons, `sluice review`, `sluice fit` and `sluice explain`."""

import json
import subprocess

import pytest
from conftest import SLUICE
from infer import ids_inputs, infer
from waiting import PATIENCE_S


def sluice(*arguments, stdin=None):
    return subprocess.run([SLUICE, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=PATIENCE_S)


def buckets(served):
    run = sluice("buckets", "--json", "--advise", "--server", served.admin)
    assert run.returncode == 0, run.stderr
    (model,) = json.loads(run.stdout)["models"]
    return model


def score(client, length):
    infer(client, ids_inputs([[256] + [65] * (length - 1)]), ["prompt_logprobs"], max_tokens=0)


def test_buckets_count_each_batch_once(daemon):
    served = daemon()
    with served.client() as client:
        for length in range(1, 41):
            score(client, length)
    model = buckets(served)
    assert model["policy"] == "packed" and model["strategy"] == "adaptive"
    uses = model["buckets"]
    assert sum(int(use["batches"]) for use in uses) == int(model["batches"]) == 40
    assert sum(int(use["useful_tokens"]) for use in uses) == sum(range(1, 41))
    assert model["bucket_fill"] == pytest.approx(
        sum(int(use["useful_tokens"]) for use in uses)
        / sum(int(use["bucket_tokens"]) for use in uses))
    batches = [(int(use["batches"]), int(use["activation_memory_bytes"])) for use in uses]
    # Activations have parts that do not grow with tokens.
    assert 0 < model["memory_overhead"] < 1 / model["bucket_fill"] - 1
    assert all(size > 0 for count, size in batches if count > 0)
    assert model["hit_rate"] == 1
    assert [size["tokens"] for size in model["lengths"]] == list(range(1, 41))
    assert "40 batches" in model["advice"][0]["finding"]
    for use in uses:
        label = f"{use['bucket']['tokens']}x{use['bucket']['rows']}"
        assert served.metric("sluice_bucket_batches_total", bucket=label) == int(use["batches"])


def test_the_history_has_the_batches_since_the_daemon_was_ready(daemon):
    served = daemon("--engine.ladder.strategy", "geometric")
    with served.client() as client:
        for length in range(1, 31):
            score(client, length)
    (stretch, *rest) = history(served)
    assert int(stretch["batches"]) == 30 and not rest
    assert int(stretch["useful_tokens"]) == sum(range(1, 31))
    assert 15 <= stretch["length_p50"] <= 16 and stretch["length_p99"] == 30
    assert stretch["end_age_seconds"] == 0 < stretch["begin_age_seconds"]
    assert [bucket["tokens"] for bucket in stretch["ladder"]] == [
        use["bucket"]["tokens"] for use in buckets(served)["buckets"]]
    run = sluice("buckets", "--history", "--server", served.admin)
    assert run.returncode == 0, run.stderr
    row = run.stdout.split("SINCE")[1].splitlines()[1]
    assert " 30 " in row and "%" in row and "buckets" in row
    assert not buckets(served)["history"], "the history is sent only on request"


def history(served):
    run = sluice("buckets", "--json", "--history", "--server", served.admin)
    assert run.returncode == 0, run.stderr
    (model,) = json.loads(run.stdout)["models"]
    return model["history"]


def test_the_table_of_buckets_has_bars_and_totals(demo):
    run = sluice("buckets", "--advise", "--server", demo.admin)
    assert run.returncode == 0, run.stderr
    assert "FILL" in run.stdout and "[" in run.stdout
    assert "step cost" in run.stdout and "us" in run.stdout.split("step cost")[1]


def test_review_fits_the_ladder_to_the_traffic(daemon):
    served = daemon("--engine.ladder.review.interval", "0", "--engine.ladder.max-buckets", "4")
    with served.client() as client:
        for at in range(200):
            score(client, 37 if at % 2 else 150)
        captured = served.metric("sluice_plan_captures_total")
        run = sluice("review", "--force", "--json", "--server", served.admin)
        assert run.returncode == 0, run.stderr
        report = json.loads(run.stdout)
        assert report["reason"]
        assert served.metric("sluice_ladder_reviews_total") == 1
        assert len(report["after"]) <= 4
        if report["changed"]:
            assert served.metric("sluice_ladder_changes_total") > 0
            assert served.metric("sluice_plan_captures_total") > captured
        # The daemon uses the ladder in the report, changed or not.
        ladder = [use["bucket"] for use in buckets(served)["buckets"] if use["in_ladder"]]
        expected = report["after"] if report["changed"] else report["before"]
        assert ladder == expected
        score(client, 37)


def test_a_ladder_of_one_column_cannot_be_reviewed(daemon):
    served = daemon("--engine.batch.policy", "static_padded")
    with served.client() as client:
        score(client, 20)
    model = buckets(served)
    assert all(use["bucket"]["positions"] > 0 for use in model["buckets"])
    run = sluice("review", "--server", served.admin)
    assert run.returncode == 1 and "FAILED_PRECONDITION" in run.stderr


def test_explain_lists_the_steps_of_a_request(demo):
    run = sluice("infer", "--text", "In the beginning", "--max-tokens", "3", "--id", "explain-me",
                 "--server", demo.grpc)
    assert run.returncode == 0, run.stderr
    words = sluice("explain", "explain-me", "--server", demo.admin)
    assert words.returncode == 0, words.stderr
    assert "Request explain-me to demo version 1 ended with OK" in words.stdout
    answer = json.loads(sluice("explain", "explain-me", "--json", "--server", demo.admin).stdout)
    assert int(answer["total_steps"]) == 3
    assert sum(int(step.get("steps", 1)) for step in answer["steps"]) == 3
    assert all(int(step["own_tokens"]) > 0 for step in answer["steps"])
    missing = sluice("explain", "absent", "--server", demo.admin)
    assert missing.returncode == 1 and "NOT_FOUND" in missing.stderr


def test_a_daemon_serves_with_the_ladder_that_fit_printed(daemon, tmp_path):
    lengths = "length\n" + "\n".join(str(37 if at % 3 else 150) for at in range(3000))
    out = tmp_path / "fitted.yaml"
    run = sluice("fit", "--lengths", "-", "--max-batch-tokens", "512", "--max-buckets", "5",
                 "--us-per-bucket-token", "50", "--out", str(out), stdin=lengths)
    assert run.returncode == 0, run.stderr
    assert out.read_text() == run.stdout
    (line,) = [line for line in run.stdout.splitlines() if "fixed_tokens" in line]
    capacities = json.loads(line.split(":")[1])
    # A ladder of twice as many buckets is printed if it is better by more than chance. 37 and 150
    # tokens are no numbers of rows that the library computes.
    assert capacities[-1] == 512 and len(capacities) <= 10
    assert {37, 150}.isdisjoint(capacities) and {40, 160} <= set(capacities)
    assert "a device that computes all rows of a bucket, rounded up" in " ".join(
        run.stdout.replace("#", "").split())
    served = daemon("--config", str(out))
    assert [use["bucket"]["tokens"] for use in buckets(served)["buckets"]] == capacities
