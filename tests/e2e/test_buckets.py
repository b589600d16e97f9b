"""Tests the buckets of real daemons, `sluice review`, `sluice fit` and `sluice explain`."""

import json
import random
import secrets
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import DEMO, SLUICE
from infer import ids_inputs, infer
from waiting import PATIENCE_S, wait_until


def sluice(*arguments, stdin=None):
    return subprocess.run([SLUICE, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=PATIENCE_S)


def buckets(served):
    run = sluice("buckets", "--json", "--advise", "--admin", served.admin)
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
        assert use["last_hour"]["batches"] == use["batches"], "the model was loaded just now"
    hour = model["last_hour"]
    assert int(hour["batches"]) == 40 and int(hour["useful_tokens"]) == sum(range(1, 41))
    assert hour["bucket_fill"] == pytest.approx(model["bucket_fill"])
    assert 0 < model["busy_share"] <= 1 and 0 < model["useful_share"]
    assert 0 < model["last_hour_seconds"] < 3660
    assert model["device_tokens_per_second"] > 0


def sums_by_label(samples, name, *labels):
    """Returns the sums of the samples of `name` by the values of some labels."""
    sums = {}
    for (sample, pairs), value in samples.items():
        if sample == name:
            key = tuple(dict(pairs)[label] for label in labels)
            sums[key] = sums.get(key, 0) + value
    return sums


def test_counters_of_buckets_sum_to_the_totals_after_random_traffic(daemon):
    """Prompts of random lengths, some of which generate, while the ladder changes."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    served = daemon("--engine.ladder.review.interval", "0", "--engine.ladder.max-buckets", "6")
    requests = [(draw.randint(1, 120), draw.choice((0, 0, 3))) for _ in range(150)]
    with served.client() as client, ThreadPoolExecutor(4) as callers:
        for begin in range(0, len(requests), 50):
            sent = requests[begin:begin + 50]
            list(callers.map(lambda request: infer(
                client, ids_inputs([[256] + [65] * (request[0] - 1)]), max_tokens=request[1]),
                sent))
            choice = ("--strategy", "geometric", "--ratio", str(draw.choice((1.3, 1.7, 2, 3))),
                      "--min-tokens", str(draw.randint(1, 20)))
            run = sluice("ladder", "set", "demo", *choice, "--admin", served.admin)
            assert run.returncode == 0, run.stderr
    # A step is counted after its answer.
    wait_until(lambda: served.metric("sluice_batches_total")
               == served.metric("sluice_engine_steps_total"))
    samples = served.metrics()
    total = sums_by_label(samples, "sluice_tokens_total", "kind")
    by_kind = sums_by_label(samples, "sluice_bucket_tokens_total", "kind")
    assert by_kind["useful",] == total["useful",] > 0
    assert by_kind["computed",] == total["computed",]
    assert by_kind["capacity",] == total["bucket",]
    lookups = sums_by_label(samples, "sluice_plan_lookups_total", "result", "reason")
    batches = sums_by_label(samples, "sluice_bucket_batches_total", "result", "reason")
    assert batches == {key: lookups[key] for key in batches}
    assert sum(batches.values()) == sum(sums_by_label(samples, "sluice_batches_total").values())
    (sequences,) = sums_by_label(samples, "sluice_bucket_sequences_total").values()
    (rows,) = sums_by_label(samples, "sluice_batch_rows_sum").values()
    assert sequences == rows
    (busy,) = sums_by_label(samples, "sluice_device_busy_seconds_total").values()
    (replays,) = sums_by_label(samples, "sluice_bucket_replay_seconds_sum").values()
    stages = sums_by_label(samples, "sluice_stage_duration_seconds_sum", "stage")
    assert busy == pytest.approx(replays) == pytest.approx(stages["replay",])
    buckets_used = sums_by_label(samples, "sluice_bucket_batches_total", "bucket")
    counts = sums_by_label(samples, "sluice_bucket_replay_seconds_count", "bucket")
    assert counts == buckets_used and len(counts) > 6, "withdrawn buckets keep their counters"
    for (bucket,), number in counts.items():
        fitting = [value for (sample, pairs), value in samples.items()
                   if sample == "sluice_bucket_replay_seconds_bucket"
                   and {("bucket", bucket), ("le", "+Inf")} <= set(pairs)]
        assert fitting == [number], bucket
    (model,) = json.loads(sluice("buckets", "--json", "--admin", served.admin).stdout)["models"]
    assert int(model["last_hour"]["batches"]) == sum(batches.values())


def test_the_memory_limit_of_a_model_is_shown_with_its_cost(daemon, tmp_path):
    config = tmp_path / "sluiced.yaml"
    config.write_text("engine: {ladder: {warm_up: 0s}}\n"
                      f"models: [{{name: demo, path: {DEMO}, ladder: "
                      "{strategy: geometric, memory_limit_bytes: 1KiB}}]\n")
    served = daemon("--config", str(config), models=())
    model = buckets(served)
    assert int(model["memory_limit_bytes"]) == 1024
    assert model["ladder_options"]["memory_limit_bytes"] == "1KiB"
    assert "cannot be met" in model["memory_limit_effect"]
    shown = sluice("models", "--server", served.grpc)
    assert shown.returncode == 0, shown.stderr
    assert "cannot be met" in " ".join(shown.stdout.split("limit")[1:])
    found = sluice("doctor", "--server", served.grpc, "--metrics-address", served.http,
                   "--admin", served.admin)
    assert "memory limit of demo" in found.stdout
    assert "engine.ladder.memory_limit_bytes of 1024 bytes" in served.stop()


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
    run = sluice("buckets", "--history", "--admin", served.admin)
    assert run.returncode == 0, run.stderr
    row = run.stdout.split("SINCE")[1].splitlines()[1]
    assert " 30 " in row and "%" in row and "buckets" in row
    assert not buckets(served)["history"], "the history is sent only on request"


def history(served):
    run = sluice("buckets", "--json", "--history", "--admin", served.admin)
    assert run.returncode == 0, run.stderr
    (model,) = json.loads(run.stdout)["models"]
    return model["history"]


def test_the_table_of_buckets_has_bars_and_totals(demo):
    run = sluice("buckets", "--advise", "--admin", demo.admin)
    assert run.returncode == 0, run.stderr
    assert "FILL" in run.stdout and "[" in run.stdout
    assert "step cost" in run.stdout and "us" in run.stdout.split("step cost")[1]
    assert "wasted      " in run.stdout and "device      busy " in run.stdout


def test_review_fits_the_ladder_to_the_traffic(daemon):
    served = daemon("--engine.ladder.review.interval", "0", "--engine.ladder.max-buckets", "4")
    with served.client() as client:
        for at in range(200):
            score(client, 37 if at % 2 else 150)
        captured = served.metric("sluice_plan_captures_total")
        run = sluice("review", "--force", "--json", "--admin", served.admin)
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
    run = sluice("review", "--admin", served.admin)
    assert run.returncode == 1 and "FAILED_PRECONDITION" in run.stderr


def test_explain_lists_the_steps_of_a_request(demo):
    run = sluice("infer", "--text", "In the beginning", "--max-tokens", "3", "--id", "explain-me",
                 "--server", demo.grpc)
    assert run.returncode == 0, run.stderr
    words = sluice("explain", "explain-me", "--admin", demo.admin)
    assert words.returncode == 0, words.stderr
    assert "Request explain-me to demo version 1 ended with OK" in words.stdout
    answer = json.loads(sluice("explain", "explain-me", "--json", "--admin", demo.admin).stdout)
    assert int(answer["total_steps"]) == 3
    assert sum(int(step.get("steps", 1)) for step in answer["steps"]) == 3
    assert all(int(step["own_tokens"]) > 0 for step in answer["steps"])
    missing = sluice("explain", "absent", "--admin", demo.admin)
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
