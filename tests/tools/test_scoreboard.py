"""Tests how the invariance scoreboard draws batches and counts answers."""

import sys

import numpy as np
import pytest

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOADTEST = ROOT / "loadtest"
sys.path[:0] = [str(each) for each in (LOADTEST / "invariance", LOADTEST / "peers", LOADTEST)]

import company  # noqa: E402
import contenders  # noqa: E402
import counting  # noqa: E402
import table  # noqa: E402

SEEDS = range(20)


def test_each_batching_has_every_request_once_and_the_first_has_single_requests():
    for seed in SEEDS:
        lengths = np.random.default_rng(seed).integers(1, 200, 100).tolist()
        made = company.companies(lengths, 4, seed)
        assert made[0] == [[number] for number in range(100)]
        assert len(made) == 4
        for groups in made:
            assert sorted(sum(groups, [])) == list(range(100)), seed
        sizes = [len(group) for groups in made[1:] for group in groups]
        assert max(sizes) <= company.LARGEST_GROUP and len(set(sizes)) > 3, seed
        assert made == company.companies(lengths, 4, seed)
        assert made[1] != made[2]


def test_prefix_fills_its_rectangle():
    assert company.prefixes([0, 1, 2, 3], [10, 2, 2, 30], 30) == [[0, 1, 2], [3]]
    assert company.prefixes([0], [100], 30) == [[0]], "a long request forms its own batch"
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        lengths, order = random.integers(1, 200, 60).tolist(), random.permutation(60).tolist()
        groups = company.prefixes(order, lengths, 512)
        assert sum(groups, []) == order, seed
        for group, after in zip(groups, [*groups[1:], None]):
            area = len(group) * max(lengths[each] for each in group)
            assert area <= 512 or len(group) == 1, seed
            if after:
                longer = [*group, after[0]]
                assert len(longer) * max(lengths[each] for each in longer) > 512, seed


def test_all_contenders_get_the_same_requests():
    made = company.requests(50, 1000, 7)
    assert all((one == other).all() for one, other in zip(made, company.requests(50, 1000, 7)))
    assert all(3 <= text.min() and text.max() < 1000 and len(text) <= company.MOST_TOKENS
               for text in made)


def test_answers_are_compared_by_bits():
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        answers = np.repeat(random.standard_normal((1, 30, 8)).astype(np.float32), 5, axis=0)
        assert counting.count_values(answers, None, ranked=True) == counting.Count(
            30, 5, 1.0, 1, 0, 0.0, None, 0), seed
        # The adjacent float counts as another pattern.
        answers[3, 4, 2] = np.nextafter(answers[3, 4, 2], np.float32(9))
        answers[2, 9, 1] += 1
        answers[4, 9, 1] += 2
        made = counting.count_values(answers, answers.argmax(axis=2), ranked=False)
        assert (made.changed, made.most_patterns) == (2, 3), seed
        assert made.mean_patterns == pytest.approx((28 + 2 + 3) / 30), seed
        assert made.largest_difference == pytest.approx(2 / np.abs(answers).max()), seed


def test_zeros_of_two_signs_are_two_patterns_and_a_nan_is_one():
    answers = np.zeros((2, 2, 1), np.float32)
    answers[1, 0] = -0.0
    answers[:, 1] = np.nan
    assert counting.patterns(answers).tolist() == [2, 1]


def test_changed_labels_and_neighbours_count_once_per_request():
    labels = np.array([[0, 1, 2], [0, 1, 3], [0, 2, 4]], np.int32)
    values = np.ones((3, 3, 2), np.float32)
    assert counting.count_values(values, labels, ranked=False).flips == 2
    # From 0, the nearest of 1 and 2 changes; from 1 and 2, nothing changes.
    vectors = np.array([[1, 0, 0], [1, 0.1, 0], [1, -0.2, 0], [0, 0, 1]], np.float32)
    assert counting.nearest(vectors, 2)[0].tolist() == [1, 2]
    other = vectors.copy()
    other[1, 1] = 0.3
    assert counting.nearest(other, 2)[0].tolist() == [2, 1]
    assert counting.count_values(np.stack([vectors, other]), None, ranked=True).reordered >= 1


def test_texts_are_counted():
    tokens = np.zeros((3, 4, 5), np.int32)
    tokens[1, 2, 4] = 7
    assert counting.count_texts(tokens) == counting.Count(4, 3, 1.25, 2, 1)


def test_every_engine_has_every_task_or_a_reason():
    tasks = list(company.TASKS)
    made = contenders.arms(tasks, None)
    assert len({(arm.task.name, arm.name) for arm in made}) == len(made)
    for task in tasks:
        assert [arm.name for arm in made if arm.task.name == task] == contenders.NAMES
    assert {(arm.engine, arm.task.name) for arm in made if arm.does_not} == set(contenders.DOES_NOT)
    assert not any(arm.does_not for arm in made if arm.engine == "sluice")
    only = contenders.arms(["text"], ["int8", "tei"])
    assert [arm.name for arm in only] == ["sluice int8", "onnxruntime int8", "tei f32",
                                          "openvino int8", "ctranslate2 int8"]


def test_cell_without_counts_shows_the_reason():
    row = {"requests": 9, "companies": 2, "mean_patterns": 1.001, "most_patterns": 2, "changed": 1,
           "largest_difference": 0.5, "flips": 0, "reordered": None, "rows_a_step": 2.5,
           "seconds": 60, "cpu_s": 90}
    report = {"date": "today", "processor": "one", "count": 9, "companies": 2, "threads": 1,
              "jobs": 2, "contenders": ["sluice f32", "a f32", "b f32", "c f32"],
              "tasks": {"score": {"rows": {"sluice f32": row}, "left_out": {"a f32": "it fell"},
                                  "does_not": {"b f32": "it has none"}}}}
    made = table.markdown(report)
    assert "| sluice f32 | 1.001 | 2 | 1 | 5.0e-01 | 0 |" in made
    assert "| a f32 | left out |" in made and "a f32 is left out: it fell." in made
    assert "| b f32 | does not do this |" in made and "- b, scores: it has none." in made
    assert "| c f32 | not measured |" in made
    assert "2.5 (sluice f32)" in made and table.minutes(report, "cpu_s") == 1.5
