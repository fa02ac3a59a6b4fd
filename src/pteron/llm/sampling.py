"""Choose a token from logits, with the names, meanings and order of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.errors import InputError

Row: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The default is greedy.

    temperature: 0 always takes the most probable token. Otherwise the logits are divided by it.
    top_k: keep the k most probable tokens; 0: all.
    top_p: keep the most probable tokens until their probabilities add up to p; 1: all.
    min_p: keep tokens whose probability is at least this fraction of the highest one; 0: all.
    repetition_penalty: above 1, tokens that are already in the text become less probable.
    seed: the same seed gives the same text; None: a random seed.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, self.temperature >= 0, "0 or more")
        _check("top_k", self.top_k, self.top_k >= 0, "0 or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "between 0 and 1")
        _check("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0, "above 0")
        _check("seed", self.seed, self.seed is None or self.seed >= 0, "0 or more")


class Sampler:
    """Chooses the tokens of one generation."""

    def __init__(self, sampling: Sampling, seen: Iterable[int] = ()) -> None:
        """`seen` are the tokens of the prompt. The repetition penalty applies to them too."""
        self.sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._seen = set(seen)

    def choose(self, logits: np.ndarray[Any, Any]) -> int:
        scores = logits.astype(np.float64)
        if np.isnan(scores).any():
            raise InputError(
                "the model's logits are not numbers: the weights or the adapter's arithmetic are wrong"
            )
        options = self.sampling
        if options.repetition_penalty != 1.0:
            penalize(scores, self._seen, options.repetition_penalty)
        token = int(scores.argmax()) if options.temperature == 0 else self._draw(scores)
        self._seen.add(token)
        return token

    def _draw(self, scores: Row) -> int:
        tokens, probabilities = distribution(scores, self.sampling)
        bounds = probabilities.cumsum()
        place = bounds.searchsorted(self._random.random() * bounds[-1], side="right")
        return int(tokens[min(int(place), len(tokens) - 1)])


def penalize(scores: Row, seen: set[int], penalty: float) -> None:
    """Divide positive scores and multiply negative ones: both make a token less probable."""
    places = np.fromiter((t for t in seen if t < len(scores)), np.int64)
    found = scores[places]
    scores[places] = np.where(found < 0, found * penalty, found / penalty)


def distribution(scores: Row, options: Sampling) -> tuple[np.ndarray[Any, Any], Row]:
    """The tokens that may be drawn, and their probabilities.

    The order is temperature, top-k, top-p, min-p. Each filter works on the result of the one before.
    """
    tokens = np.arange(len(scores))
    if 0 < options.top_k < len(scores):
        # Keep ties with the k-th score, so the result does not depend on the order of equal tokens.
        least = np.partition(scores, -options.top_k)[-options.top_k]
        tokens = np.flatnonzero(scores >= least)
    probabilities = softmax(scores[tokens], options.temperature)
    if options.top_p < 1:
        # The tokens below this bound have less than 1 - p in total: none is kept, so they need no sorting.
        likely = np.flatnonzero(probabilities >= (1 - options.top_p) / len(probabilities))
        order = likely[np.argsort(-probabilities[likely], kind="stable")]
        before = probabilities[order].cumsum() - probabilities[order]
        kept = order[: max(1, int((before < options.top_p).sum()))]
        tokens, probabilities = tokens[kept], probabilities[kept]
    if options.min_p > 0:
        likely = probabilities >= options.min_p * probabilities.max()
        tokens, probabilities = tokens[likely], probabilities[likely]
    return tokens, probabilities / probabilities.sum()


def softmax(scores: Row, temperature: float) -> Row:
    powers: Row = np.exp((scores - scores.max()) / temperature)
    powers /= powers.sum()
    return powers


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}: expected {expected}")
