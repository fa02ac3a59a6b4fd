"""Sampling against the definitions, written out for every token."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pteron.errors import InputError
from pteron.llm import Sampler, Sampling
from pteron.llm.sampling import distribution, penalize

LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 0.0])


def by_definition(logits: Any, options: Sampling) -> Any:
    """Hugging Face's warpers over the whole vocabulary: what is filtered out becomes minus infinity."""
    scores = torch.from_numpy(logits) / options.temperature
    if options.top_k:
        least = scores.topk(min(options.top_k, len(scores))).values[-1]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if options.top_p < 1:
        ascending, order = scores.sort(stable=True)
        remove = ascending.softmax(-1).cumsum(-1) <= 1 - options.top_p
        remove[-1] = False
        scores = scores.masked_fill(torch.zeros_like(remove).scatter(0, order, remove), -torch.inf)
    if options.min_p:
        probabilities = scores.softmax(-1)
        keep = probabilities >= options.min_p * probabilities.max()
        scores = scores.masked_fill(~keep, -torch.inf)
    return scores.softmax(-1).numpy()


def as_row(logits: Any, options: Sampling) -> Any:
    tokens, probabilities = distribution(logits, options)
    row = np.zeros(len(logits))
    row[tokens] = probabilities
    return row


@given(
    # Distinct logits: which of two equal tokens top-p drops is nobody's promise.
    arrays.arrays(
        np.float64, st.integers(1, 40), elements=st.integers(-80, 80).map(lambda n: n / 8), unique=True
    ),
    st.sampled_from([0.3, 0.7, 1.0, 2.0]),
    st.sampled_from([0, 1, 2, 5, 100]),
    st.sampled_from([0.05, 0.33, 0.77, 0.951, 1.0]),
    st.sampled_from([0.0, 0.051, 0.301, 1.0]),
)
def test_filters_are_hugging_faces(
    logits: Any, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    options = Sampling(temperature, top_k, top_p, min_p)
    np.testing.assert_allclose(as_row(logits, options), by_definition(logits, options), atol=1e-9)


def test_ties_at_the_kth_place_stay() -> None:
    assert np.count_nonzero(as_row(np.array([1.0, 2.0, 1.0, 0.0]), Sampling(1.0, top_k=2))) == 3


def test_zero_temperature_is_greedy() -> None:
    sampler = Sampler(Sampling(temperature=0, top_k=3, seed=1))
    assert [sampler.choose(LOGITS) for _ in range(5)] == [1] * 5


def test_greedy_takes_the_first_of_equals() -> None:
    assert Sampler(Sampling()).choose(np.array([0.0, 2.0, 2.0], np.float32)) == 1


def test_repetition_penalty_divides_the_positive_and_multiplies_the_negative() -> None:
    scores = LOGITS.copy()
    penalize(scores, {1, 3, 99}, 2.0)
    assert scores.tolist() == [1.0, 1.5, 2.0, -2.0, 0.0]


def test_repetition_penalty_counts_the_prompt_and_the_answer() -> None:
    sampler = Sampler(Sampling(repetition_penalty=4.0), seen=[1])
    assert [sampler.choose(LOGITS) for _ in range(3)] == [2, 0, 1]


def test_seeds_reproduce_and_differ() -> None:
    def draws(seed: int) -> list[int]:
        sampler = Sampler(Sampling(1.0, seed=seed))
        return [sampler.choose(LOGITS) for _ in range(40)]

    assert draws(3) == draws(3)
    assert draws(3) != draws(4)


def test_draws_follow_the_distribution() -> None:
    options = Sampling(1.0, top_k=3, seed=0)
    sampler = Sampler(options)
    counts = Counter(sampler.choose(LOGITS) for _ in range(4000))
    want = as_row(LOGITS, options)
    assert set(counts) == {0, 1, 2}
    for token, count in counts.items():
        assert count / 4000 == pytest.approx(want[token], abs=0.03)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"min_p": 2},
        {"repetition_penalty": 0},
    ],
)
def test_senseless_values_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Sampling(**options)


def test_logits_that_are_not_numbers_are_not_sampled() -> None:
    with pytest.raises(InputError, match="not numbers"):
        Sampler(Sampling()).choose(np.array([0.0, np.nan]))
