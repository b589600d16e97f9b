"""Tests `sluice ladder` on real daemons, including changes of strategy under load."""

import json
import random
import threading

from failing_files import FailingFiles
from infer import ids_inputs, infer
from test_buckets import buckets, sluice

CHOICES = (
    ("--strategy", "geometric", "--ratio", "2"),
    ("--strategy", "memory_optimal"),
    ("--strategy", "fixed", "--fixed-tokens", "24,100,1000"),
    ("--strategy", "hardware_aware", "--max-buckets", "8"),
    ("--strategy", "adaptive", "--max-buckets", "4"),
)


def answer(client, prompt):
    result = infer(client, ids_inputs([prompt]), ["output_ids", "prompt_logprobs"], max_tokens=4)
    return (result["output_ids"].tolist(),
            result["prompt_logprobs"].tobytes())


def prompts(seed, count):
    draw = random.Random(seed)
    return [[256] + [draw.randrange(256) for _ in range(draw.randrange(1, 200))]
            for _ in range(count)]


def test_no_call_fails_or_changes_while_ladders_are_chosen(daemon):
    served = daemon("--engine.kv.prefix-reuse", "false")
    lists = [prompts(seed, 40) for seed in (1, 2, 3)]
    with served.client() as client:
        expected = [[answer(client, prompt) for prompt in each] for each in lists]
    got = [[] for _ in lists]

    def serve(index):
        with served.client() as client:
            while not chosen.is_set() or len(got[index]) < 2 * len(lists[index]):
                got[index].append(answer(client, lists[index][len(got[index]) % 40]))

    chosen = threading.Event()
    callers = [threading.Thread(target=serve, args=(index,)) for index in range(len(lists))]
    for caller in callers:
        caller.start()
    try:
        for choice in CHOICES:
            run = sluice("ladder", "set", "demo", *choice, "--admin", served.admin)
            assert run.returncode == 0, run.stderr
            model = buckets(served)
            assert model["strategy"] == choice[1]
        run = sluice("ladder", "reset", "demo", "--admin", served.admin)
        assert run.returncode == 0, run.stderr
    finally:
        chosen.set()
        for caller in callers:
            caller.join()
    for index, answers in enumerate(got):
        assert len(answers) >= 80, "a call failed"
        for at, each in enumerate(answers):
            assert each == expected[index][at % 40], f"seed {index + 1}, prompt {at % 40}"
    assert served.metric("sluice_requests_total") == sum(map(len, got + expected))


def test_kept_ladder_survives_a_restart(daemon, tmp_path):
    options = ("--engine.ladder.file", str(tmp_path / "ladder.json"))
    served = daemon(*options)
    run = sluice("ladder", "set", "demo", "--strategy", "geometric", "--ratio", "2", "--keep",
                 "--admin", served.admin)
    assert run.returncode == 0, run.stderr
    served.stop()
    served = daemon(*options)
    run = sluice("ladder", "show", "--json", "--admin", served.admin)
    (model,) = json.loads(run.stdout)["models"]
    assert model["ladder_options"]["strategy"] == "geometric"
    assert model["ladder_kept"] == {"strategy": "geometric", "ratio": "2"}
    assert "restart     keeps --ratio 2 --strategy geometric" in sluice(
        "ladder", "show", "demo", "--admin", served.admin).stdout


def test_keeping_needs_a_ladder_file(demo):
    run = sluice("ladder", "set", "demo", "--ratio", "2", "--keep", "--admin", demo.admin)
    assert run.returncode == 1 and "engine.ladder.file is empty" in run.stderr


def serve_prompts(served):
    with served.client() as client:
        for at in range(120):
            infer(client, ids_inputs([[256] + [65] * (at % 50)]), ["prompt_logprobs"],
                  max_tokens=0)


def test_no_ladder_is_recommended_where_buckets_do_not_change_the_speed(daemon):
    """A CPU computes only the tokens of a batch."""
    served = daemon("--engine.ladder.ratio", "4", "--engine.ladder.max-buckets", "3")
    serve_prompts(served)
    trials = json.loads(
        sluice("ladder", "try", "demo", "--json", "--admin", served.admin).stdout)
    assert [trial["name"] for trial in trials["trials"]] == [trials["best"]] == ["present"]
    assert trials["ladder_is_free"] is True
    reason = "this device computes only the tokens of a batch"
    assert reason in sluice("ladder", "try", "demo", "--admin", served.admin).stdout
    review = sluice("review", "--force", "--admin", served.admin)
    assert review.returncode == 0 and reason in review.stdout
    assert reason in " ".join(
        sluice("buckets", "--advise", "--admin", served.admin).stdout.split())


def test_strategies_are_tried_on_the_recorded_traffic(daemon):
    served = daemon("--engine.ladder.review.interval", "0", "--engine.batch.policy",
                    "padded_buckets")
    run = sluice("ladder", "try", "demo", "--admin", served.admin)
    assert run.returncode == 1 and "only 0 sequences arrived" in run.stderr
    serve_prompts(served)
    run = sluice("ladder", "try", "demo", "--json", "--admin", served.admin)
    assert run.returncode == 0, run.stderr
    trials = json.loads(run.stdout)
    names = [trial["name"] for trial in trials["trials"]]
    assert names[:3] == ["present", "one bucket", "adaptive"] and trials["best"] in names
    gains = {trial["name"]: trial["gain"] for trial in trials["trials"]}
    assert max(gains.values()) <= gains[trials["best"]] + trials["margin"]
    run = sluice("ladder", "try", "demo", "--admin", served.admin)
    assert "FILL" in run.stdout
    assert "over a single bucket" in run.stdout or "gains nothing" in run.stdout


def test_a_choice_that_a_full_disk_does_not_keep_is_an_error(daemon, tmp_path):
    full, folder = tmp_path / "full", tmp_path / "files"
    folder.mkdir()
    ladder = folder / "ladder.json"
    failing = FailingFiles(folder, full_while=full)

    def start():
        return daemon("--engine.ladder.file", str(ladder), variables=failing.variables)

    def keep(served, ratio):
        return sluice("ladder", "set", "demo", "--strategy", "geometric", "--ratio", ratio,
                      "--keep", "--admin", served.admin)

    served = start()
    assert keep(served, "2").returncode == 0
    full.touch()
    run = keep(served, "3")
    assert run.returncode == 1 and "Changed" not in run.stdout, run.stdout
    for words in ("the ladder is changed", "not kept", str(ladder), "No space left on device"):
        assert words in run.stderr, run.stderr
    model = buckets(served)
    assert model["ladder_options"]["ratio"] == "3"
    assert model["ladder_kept"] == {"strategy": "geometric", "ratio": "2"}
    full.unlink()
    served.stop()  # writes the file, with the choice that is kept
    served = start()
    assert buckets(served)["ladder_options"]["ratio"] == "2"
    assert keep(served, "3").returncode == 0
    served.stop()
    assert buckets(start())["ladder_options"]["ratio"] == "3"
