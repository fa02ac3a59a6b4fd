"""The tokens that may come next, and the filters that remove improbable ones.

A filter takes candidates and returns fewer. Probabilities are always those of the candidates that are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from pteron.errors import InputError

Row: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Tokens: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


COLUMNS_PER_TOKEN = 16  # with fewer, `Candidates.likely` keeps more tokens; with more, it sorts more


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens and their logits. A new set has its tokens in ascending order."""

    tokens: Tokens
    logits: Row

    @classmethod
    def of(cls, logits: np.ndarray[Any, Any]) -> Candidates:
        """All tokens, except those that the model excludes (minus infinity)."""
        wide = logits.astype(np.float64).reshape(-1)
        _check_highest(wide.max())
        everything = cls(_all_tokens(len(wide)), wide)
        return everything if wide.min() > -np.inf else everything.keep(wide > -np.inf)

    @classmethod
    def best(cls, logits: np.ndarray[Any, Any]) -> Candidates:
        """The most probable token; of equal ones, the first."""
        row = logits.reshape(-1)
        place = row.argmax()
        _check_highest(row[place])
        return cls(np.array([place]), row[place : place + 1].astype(np.float64))

    @classmethod
    def likely(cls, logits: np.ndarray[Any, Any], k: int) -> Candidates:
        """Return a small superset of the k most probable tokens and of those that tie with the last of them.

        It compares the logits as they are: most of them need not be widened or sorted.
        """
        row = logits.reshape(-1)
        columns = COLUMNS_PER_TOKEN * k
        depth = len(row) // columns
        if depth < 2:
            return cls.of(row)
        _check_highest(row.max())
        # Every column has a highest logit, so k logits are at least as high as the k-th highest of these.
        tops = row[: depth * columns].reshape(depth, columns).max(0)
        tops.partition(columns - k)
        places = np.flatnonzero(row >= tops[columns - k])
        found = cls(places, row[places].astype(np.float64))
        return found.keep(found.logits > -np.inf)

    def __len__(self) -> int:
        return len(self.tokens)

    def keep(self, chosen: np.ndarray[Any, Any]) -> Candidates:
        """The candidates at these positions, in this order; or those where a mask is true."""
        return Candidates(self.tokens[chosen], self.logits[chosen])

    @property
    def probabilities(self) -> Row:
        powers: Row = self.logits - self.logits.max()
        np.exp(powers, out=powers)  # new memory for a whole vocabulary costs as much as the exponentials
        powers /= powers.sum()
        return powers


@lru_cache(maxsize=2)
def _all_tokens(count: int) -> Tokens:
    tokens = np.arange(count)
    tokens.flags.writeable = False  # it is shared
    return tokens


def _check_highest(logit: float) -> None:
    """Refuse logits by their maximum, which is not a number if any of them is not."""
    if np.isnan(logit):
        raise InputError(
            "the model's logits are not numbers: the weights or the adapter's arithmetic are wrong"
        )
    if logit == -np.inf:
        raise InputError("the model excludes every token: all logits are minus infinity")


def greedy(candidates: Candidates) -> Candidates:
    """Keep the most probable token; of equal ones, the first."""
    return candidates.keep(np.array([candidates.logits.argmax()]))


def top_k(candidates: Candidates, k: int) -> Candidates:
    """Keep the k most probable tokens, and those that tie with the last of them."""
    if k >= len(candidates):
        return candidates
    return candidates.keep(candidates.logits >= np.partition(candidates.logits, -k)[-k])


def top_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the most probable tokens until their probabilities add up to p."""
    probabilities = candidates.probabilities
    # The tokens below this bound have less than 1 - p in total: none is kept, so they need no sorting.
    likely = np.flatnonzero(probabilities >= (1 - p) / len(probabilities))
    order = likely[np.argsort(-probabilities[likely], kind="stable")]
    before = probabilities[order].cumsum() - probabilities[order]
    return candidates.keep(order[: max(1, int((before < p).sum()))])


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Keep tokens whose probability is at least this fraction of the highest one."""
    return candidates.keep(candidates.logits >= candidates.logits.max() + np.log(p))


def typical(candidates: Candidates, p: float) -> Candidates:
    """Keep the tokens whose surprise is nearest to the expected one, until their probabilities exceed p."""
    probabilities = candidates.probabilities
    surprise = -np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    distance = np.abs(surprise - float(probabilities @ surprise))
    # The tokens below this bound have less than 1 - p in total, so the others exceed p. A token that is
    # farther away than they need to be is not kept: the rest is little to sort.
    likely = probabilities >= (1 - p) / len(probabilities)
    enough = _nearest(probabilities[likely], distance[likely], p)
    near = np.flatnonzero(distance <= distance[likely][enough].max())
    return candidates.keep(near[_nearest(probabilities[near], distance[near], p)])


def _nearest(probabilities: Row, distance: Row, p: float) -> Tokens:
    """The positions with the smallest distances, until their probabilities exceed p."""
    order = np.argsort(distance, kind="stable")
    return order[: 1 + int((probabilities[order].cumsum() <= p).sum())]


def exclude_top(
    candidates: Candidates, probability: float, threshold: float, random: np.random.Generator
) -> Candidates:
    """XTC: sometimes remove all tokens above a threshold but the least probable of them."""
    if random.random() >= probability:
        return candidates
    probabilities = candidates.probabilities
    above = np.flatnonzero(probabilities >= threshold)
    spared = above[np.argsort(-probabilities[above], kind="stable")][-1:]
    stays = probabilities < threshold
    stays[spared] = True
    return candidates.keep(stays)


def temperature(candidates: Candidates, value: float) -> Candidates:
    """Divide the logits: above 1, probabilities become more equal."""
    return Candidates(candidates.tokens, candidates.logits / value)
