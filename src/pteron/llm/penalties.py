"""Changes of logits that depend on the text so far: they make repetition less probable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from pteron.llm.candidates import Candidates, Tokens

LARGEST = 1e30  # a penalty that excludes a token, but is still a number


def bias(candidates: Candidates, biases: Mapping[int, float]) -> Candidates:
    """Add a number to the logits of some tokens."""
    return _add(candidates, biases)


def penalize(
    candidates: Candidates,
    text: Sequence[int],
    last: int,
    repetition: float,
    presence: float,
    frequency: float,
) -> Candidates:
    """Penalize the tokens among the last ones of the text.

    repetition: positive logits are divided by it, negative ones multiplied: both make a token less probable.
    presence: is subtracted once. frequency: is subtracted as often as the token occurs.
    """
    counts = Counter(recent(text, last))
    places, found = _find(candidates, counts)
    times = np.array([counts[token] for token in found], np.float64)
    logits = candidates.logits.copy()
    old = logits[places]
    logits[places] = np.where(old <= 0, old * repetition, old / repetition) - presence - frequency * times
    return Candidates(candidates.tokens, logits)


def dry(
    candidates: Candidates,
    text: Sequence[int],
    last: int,
    multiplier: float,
    base: float,
    allowed_length: int,
    breakers: Collection[int],
) -> Candidates:
    """Penalize tokens that would continue a repetition ("don't repeat yourself").

    If the last n tokens occurred before, the token that followed them there gets a penalty of
    multiplier * base ** (n - allowed_length). Shorter repetitions are allowed. A repetition does not extend
    over a token in `breakers`.
    """
    lengths = repetitions(recent(text, last), breakers)
    with np.errstate(over="ignore"):
        penalties = {
            token: min(float(multiplier * np.power(base, float(n - allowed_length))), LARGEST)
            for token, n in lengths.items()
            if n >= allowed_length
        }
    return _add(candidates, {token: -value for token, value in penalties.items()})


def repetitions(text: Sequence[int], breakers: Collection[int]) -> dict[int, int]:
    """The tokens that would continue a repetition, and the length of the longest such repetition."""
    backwards = list(reversed(text))
    limit = next((i for i, token in enumerate(backwards) if token in breakers), len(backwards))
    longest: dict[int, int] = {}
    for start, length in enumerate(_common_prefixes(backwards)):
        if min(length, limit):
            follower = backwards[start - 1]
            longest[follower] = max(longest.get(follower, 0), min(length, limit))
    return longest


def _common_prefixes(items: Sequence[int]) -> list[int]:
    """For each position but the first: how many items from there on equal those at the start (Z-function)."""
    lengths = [0] * len(items)
    begin = end = 0  # the match that reaches farthest
    for i in range(1, len(items)):
        length = min(end - i, lengths[i - begin]) if i < end else 0
        while i + length < len(items) and items[length] == items[i + length]:
            length += 1
        if i + length > end:
            begin, end = i, i + length
        lengths[i] = length
    return lengths


def recent(text: Sequence[int], last: int) -> Sequence[int]:
    """The last tokens of a text; -1: all."""
    return text if last < 0 else text[max(len(text) - last, 0) :]


def _find(candidates: Candidates, tokens: Collection[int]) -> tuple[Tokens, list[int]]:
    """Which of the tokens are candidates, and where."""
    wanted = np.array(sorted(tokens), np.int64)
    places = np.searchsorted(candidates.tokens, wanted)
    exists = candidates.tokens[np.minimum(places, len(candidates) - 1)] == wanted
    return places[exists], [int(token) for token in wanted[exists]]


def _add(candidates: Candidates, changes: Mapping[int, float]) -> Candidates:
    """Add to the logits of some tokens."""
    places, found = _find(candidates, changes)
    logits = candidates.logits.copy()
    logits[places] += [changes[token] for token in found]
    return Candidates(candidates.tokens, logits)
