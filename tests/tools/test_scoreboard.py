"""Tests how the scoreboard of invariance draws companies and counts answers."""

import sys

import numpy as np
import pytest

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "loadtest" / "invariance"), str(ROOT / "loadtest" / "peers")]

import company  # noqa: E402
import counting  # noqa: E402

SEEDS = range(20)


def test_a_company_holds_each_request_once_and_the_first_one_alone():
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


def test_a_prefix_is_as_long_as_its_rectangle_allows():
    assert company.prefixes([0, 1, 2, 3], [10, 2, 2, 30], 30) == [[0, 1, 2], [3]]
    assert company.prefixes([0], [100], 30) == [[0]], "a long one is alone"
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


def test_requests_are_drawn_alike_for_all():
    made = company.requests(50, 1000, 7)
    assert all((one == other).all() for one, other in zip(made, company.requests(50, 1000, 7)))
    assert all(3 <= text.min() and text.max() < 1000 and len(text) <= company.MOST_TOKENS
               for text in made)


def test_answers_are_counted_bit_by_bit():
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        answers = np.repeat(random.standard_normal((1, 30, 8)).astype(np.float32), 5, axis=0)
        assert counting.count_values(answers, None, ranked=True) == counting.Count(
            30, 5, 1.0, 1, 0, 0.0, None, 0), seed
        # The next float is another pattern, however near it is.
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


def test_labels_and_neighbours_that_change_are_counted_once_for_a_request():
    labels = np.array([[0, 1, 2], [0, 1, 3], [0, 2, 4]], np.int32)
    values = np.ones((3, 3, 2), np.float32)
    assert counting.count_values(values, labels, ranked=False).flips == 2
    # Seen from 0, which is the nearest of 1 and 2 changes; seen from these it does not.
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
