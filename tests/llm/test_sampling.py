"""Each sampling method against its definition, written out in torch over the whole vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pteron.errors import InputError
from pteron.llm import Sampler, Sampling
from pteron.llm import candidates as filters
from pteron.llm.candidates import Candidates
from pteron.llm.penalties import bias, dry, penalize, repetitions

LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 0.0])
# Distinct logits: which of two equal tokens a filter drops is not defined.
ROWS = arrays.arrays(
    np.float64, st.integers(1, 40), elements=st.integers(-80, 80).map(lambda n: n / 8), unique=True
)


def as_row(left: Candidates, size: int) -> Any:
    """The probabilities of all tokens."""
    row = np.zeros(size)
    row[left.tokens] = left.probabilities
    return row


def keep(scores: Any, kept: Any) -> Any:
    return scores.masked_fill(~kept, -torch.inf)


# -- definitions --------------------------------------------------------------------------------


def define_top_k(scores: Any, k: int) -> Any:
    return keep(scores, scores >= scores.topk(min(k, len(scores))).values[-1])


def define_top_p(scores: Any, p: float) -> Any:
    ordered, order = scores.softmax(-1).sort(descending=True, stable=True)
    count = int((ordered.cumsum(-1) < p).sum()) + 1  # up to the token that reaches p
    kept = torch.zeros(len(scores), dtype=torch.bool)
    kept[order[:count]] = True
    return keep(scores, kept)


def define_min_p(scores: Any, p: float) -> Any:
    probabilities = scores.softmax(-1)
    return keep(scores, probabilities >= p * probabilities.max() * (1 - 1e-12))


def define_typical(scores: Any, p: float) -> Any:
    probabilities, logs = scores.softmax(-1), scores.log_softmax(-1)
    entropy = -torch.nansum(probabilities * logs)
    order = (-logs - entropy).abs().argsort(stable=True)
    count = int((probabilities[order].cumsum(-1) <= p).sum()) + 1
    kept = torch.zeros(len(scores), dtype=torch.bool)
    kept[order[:count]] = True
    return keep(scores, kept)


def define_xtc(scores: Any, threshold: float) -> Any:
    ordered, order = scores.softmax(-1).sort(descending=True, stable=True)
    above = int((ordered >= threshold).sum())
    kept = torch.ones(len(scores), dtype=torch.bool)
    kept[order[: max(above - 1, 0)]] = False
    return keep(scores, kept)


RANDOM = np.random.default_rng(0)
FILTERS: list[tuple[Callable[[Candidates], Candidates], Callable[[Any], Any]]] = [
    *((partial(filters.top_k, k=k), partial(define_top_k, k=k)) for k in (1, 2, 5, 100)),
    *((partial(filters.top_p, p=p), partial(define_top_p, p=p)) for p in (0.05, 0.33, 0.77, 0.951)),
    *((partial(filters.min_p, p=p), partial(define_min_p, p=p)) for p in (0.051, 0.301, 1.0)),
    *((partial(filters.typical, p=p), partial(define_typical, p=p)) for p in (0.11, 0.513, 0.9)),
    *(
        (
            partial(filters.exclude_top, probability=1.0, threshold=t, random=RANDOM),
            partial(define_xtc, threshold=t),
        )
        for t in (0.0, 0.051, 0.303, 0.7)
    ),
    *((partial(filters.temperature, value=t), lambda scores, t=t: scores / t) for t in (0.3, 1.7)),
]


@pytest.mark.parametrize(("ours", "definition"), FILTERS)
@settings(max_examples=40)
@given(logits=ROWS)
def test_each_filter_is_its_definition(ours: Any, definition: Any, logits: Any) -> None:
    want = definition(torch.from_numpy(logits)).softmax(-1).numpy()
    np.testing.assert_allclose(as_row(ours(Candidates.of(logits)), len(logits)), want, atol=1e-9)


@given(
    logits=ROWS,
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5]),
    typical_p=st.sampled_from([0.513, 1.0]),
    top_p=st.sampled_from([0.33, 0.951, 1.0]),
    min_p=st.sampled_from([0.0, 0.051]),
)
def test_the_order_is_that_of_llama_cpp(
    logits: Any, temperature: float, top_k: int, typical_p: float, top_p: float, min_p: float
) -> None:
    scores = torch.from_numpy(logits)
    scores = define_top_k(scores, top_k) if top_k else scores
    scores = define_typical(scores, typical_p) if typical_p < 1 else scores
    scores = define_top_p(scores, top_p) if top_p < 1 else scores
    scores = define_min_p(scores, min_p) if min_p else scores
    want = (scores / temperature).softmax(-1).numpy()
    options = Sampling(temperature, top_k, top_p, min_p, typical_p)
    np.testing.assert_allclose(
        as_row(Sampler(options).candidates(logits), len(logits)), want, atol=1e-9, rtol=1e-7
    )


def test_ties_at_the_kth_place_stay() -> None:
    assert len(filters.top_k(Candidates.of(np.array([1.0, 2.0, 1.0, 0.0])), 2)) == 3


def test_xtc_happens_as_often_as_it_should() -> None:
    sampler = Sampler(Sampling(1.0, xtc_probability=0.25, seed=0))
    happened = sum(len(sampler.candidates(LOGITS)) < len(LOGITS) for _ in range(2000))
    assert happened / 2000 == pytest.approx(0.25, abs=0.03)


def test_excluded_tokens_are_never_candidates() -> None:
    logits = np.array([-np.inf, 1.0, -np.inf, 2.0])
    options = Sampling(1.0, typical_p=0.9, logit_bias={0: 5.0, 3: -50.0}, presence_penalty=1.0)
    assert Sampler(options, prompt=[0, 1]).choose(logits) == 1
    with pytest.raises(InputError, match="excludes every token"):
        Sampler(Sampling()).choose(np.full(3, -np.inf))


# -- greedy -------------------------------------------------------------------------------------


def test_zero_temperature_is_greedy_whatever_the_filters_are() -> None:
    sampler = Sampler(Sampling(0, top_k=3, typical_p=0.1, xtc_probability=1.0, xtc_threshold=0.0, seed=1))
    assert [sampler.choose(LOGITS) for _ in range(5)] == [1] * 5


def test_greedy_takes_the_first_of_equals() -> None:
    assert Sampler(Sampling()).choose(np.array([0.0, 2.0, 2.0], np.float32)) == 1


# -- penalties ----------------------------------------------------------------------------------


@given(
    logits=ROWS,
    text=st.lists(st.integers(0, 50), max_size=30),
    last=st.sampled_from([-1, 0, 3, 64]),
    repetition=st.sampled_from([0.7, 1.0, 1.3]),
    presence=st.sampled_from([-0.5, 0.0, 1.5]),
    frequency=st.sampled_from([0.0, 0.25]),
)
def test_penalties_are_their_definition(
    logits: Any, text: list[int], last: int, repetition: float, presence: float, frequency: float
) -> None:
    want = logits.copy()
    recent = text if last < 0 else text[len(text) - min(last, len(text)) :]
    for token in set(recent):
        if token < len(want):
            want[token] = want[token] * repetition if want[token] <= 0 else want[token] / repetition
            want[token] -= presence + frequency * recent.count(token)
    got = penalize(Candidates.of(logits), text, last, repetition, presence, frequency)
    np.testing.assert_allclose(got.logits, want, atol=1e-12)


def test_penalties_count_the_prompt_and_the_answer() -> None:
    sampler = Sampler(Sampling(repetition_penalty=4.0), prompt=[1])
    assert [sampler.choose(LOGITS) for _ in range(3)] == [2, 0, 1]


def test_bias_is_added() -> None:
    got = bias(Candidates.of(LOGITS), {0: 10.0, 3: -2.5, 77: 1.0})
    np.testing.assert_array_equal(got.logits, [11.0, 3.0, 2.0, -3.5, 0.0])


@given(st.lists(st.integers(0, 3), max_size=25), st.sets(st.integers(0, 3), max_size=1))
def test_repetitions_are_found(text: list[int], breakers: set[int]) -> None:
    """By trying every length of the end of the text at every earlier place."""
    want: dict[int, int] = {}
    for length in range(1, len(text)):
        end = text[-length:]
        if breakers & set(end):
            break
        for start in range(len(text) - length):
            if text[start : start + length] == end:
                want[text[start + length]] = length
    assert repetitions(text, breakers) == want


def test_dry_grows_with_the_length_of_the_repetition() -> None:
    text = [1, 2, 3, 4, 0, 2, 3, 0, 1, 2, 3]  # 1 2 3 was followed by 4, and 2 3 by 0
    got = dry(Candidates.of(LOGITS), text, -1, 2.0, 1.5, 2, ())
    np.testing.assert_allclose(got.logits, LOGITS - [2.0, 0, 0, 0, 2.0 * 1.5])
    short = dry(Candidates.of(LOGITS), text, 6, 2.0, 1.5, 2, ())
    np.testing.assert_allclose(short.logits, LOGITS - [2.0, 0, 0, 0, 0])
    assert np.isfinite(dry(Candidates.of(LOGITS), [1] * 5000, -1, 1.0, 1e9, 1, ()).logits).all()


def test_dry_stops_a_loop() -> None:
    def ends(options: Sampling, breakers: frozenset[int] = frozenset()) -> list[int]:
        sampler = Sampler(options, [1, 2, 3, 1, 2, 3, 1], breakers)
        return [sampler.choose(np.array([0.0, 0.0, 1.0, 0.0, 0.5]))]

    assert ends(Sampling()) == [2]
    assert ends(Sampling(dry_multiplier=5.0)) == [4]
    assert ends(Sampling(dry_multiplier=5.0), frozenset([3, 1])) == [2]


# -- drawing ------------------------------------------------------------------------------------


def test_seeds_reproduce_and_differ() -> None:
    def draws(seed: int) -> list[int]:
        sampler = Sampler(Sampling(1.0, xtc_probability=0.5, seed=seed))
        return [sampler.choose(LOGITS) for _ in range(40)]

    assert draws(3) == draws(3)
    assert draws(3) != draws(4)


def test_draws_follow_the_distribution() -> None:
    sampler = Sampler(Sampling(1.0, top_k=3, seed=0))
    want = as_row(sampler.candidates(LOGITS), len(LOGITS))
    counts = Counter(sampler.choose(LOGITS) for _ in range(4000))
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
        {"typical_p": 0},
        {"xtc_probability": 1.1},
        {"repetition_penalty": 0},
        {"presence_penalty": float("inf")},
        {"penalty_last_n": -2},
        {"dry_base": 0.5},
        {"dry_allowed_length": 0},
        {"logit_bias": {3: float("nan")}},
    ],
)
def test_senseless_values_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Sampling(**options)


def test_logits_that_are_not_numbers_are_not_sampled() -> None:
    with pytest.raises(InputError, match="not numbers"):
        Sampler(Sampling()).choose(np.array([0.0, np.nan]))


@given(
    arrays.arrays(
        np.float32,
        st.integers(1, 700),
        # Few different values, so that many tokens are equally probable.
        elements=st.sampled_from([-np.inf, *range(-3, 12)]),
    ),
    st.integers(1, 12),
)
def test_a_look_at_the_most_probable_tokens_is_enough(row: Any, k: int) -> None:
    row[0] = 1  # not all are excluded
    everything = Candidates.of(row)
    few = Candidates.likely(row, k)
    want, got = filters.top_k(everything, k), filters.top_k(few, k)
    np.testing.assert_array_equal(got.tokens, want.tokens)
    np.testing.assert_array_equal(got.logits, want.logits)
    np.testing.assert_array_equal(Candidates.best(row).tokens, filters.greedy(everything).tokens)


def test_few_tokens_of_a_large_vocabulary_are_sorted() -> None:
    row = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    assert 40 <= len(Candidates.likely(row, 40)) < 80


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_k": 3}, {"temperature": 1.0}])
def test_every_look_refuses_logits_that_are_not_numbers(options: dict[str, Any]) -> None:
    row = np.zeros(400, np.float32)
    row[-1] = np.nan
    with pytest.raises(InputError, match="not numbers"):
        Sampler(Sampling(**options)).choose(row)
    with pytest.raises(InputError, match="excludes every token"):
        Sampler(Sampling(**options)).choose(np.full(400, -np.inf, np.float32))
