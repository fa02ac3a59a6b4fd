"""Choose a token from logits, with the methods of llama.cpp in its default order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from pteron.errors import InputError
from pteron.llm import candidates as filters
from pteron.llm import penalties
from pteron.llm.candidates import Candidates
from pteron.llm.grammar import Constraint

Step: TypeAlias = Callable[[Candidates], Candidates]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The default is greedy.

    Attributes:
        temperature: 0 always takes the most probable token. Otherwise the logits are divided by it.
        top_k: Keep the k most probable tokens; 0: all.
        top_p: Keep the most probable tokens until their probabilities add up to p; 1: all.
        min_p: Keep tokens whose probability is at least this fraction of the highest one; 0: all.
        typical_p: Keep the tokens whose surprise is nearest to the expected one, with this total; 1: all.
        xtc_probability: How often to remove the tokens above `xtc_threshold`, except the least probable of
            them.
        xtc_threshold: The probability above which tokens are removed.
        repetition_penalty: Above 1, tokens that are already in the text become less probable.
        presence_penalty: A number that is subtracted from the logits of tokens that are in the text.
        frequency_penalty: A number that is subtracted once for each time that a token is in the text.
        penalty_last_n: These three look at so many last tokens of the text; -1: at all, 0: at none.
        dry_multiplier: Above 0, a token that continues a repetition of n tokens is penalized by
            dry_multiplier * dry_base ** (n - dry_allowed_length).
        dry_base: See `dry_multiplier`.
        dry_allowed_length: Shorter repetitions are not penalized.
        dry_last_n: Look for repetitions in so many last tokens; -1: in all.
        dry_breakers: A repetition does not extend over tokens that contain one of these texts.
        logit_bias: Numbers to add to the logits of some tokens.
        seed: The same seed gives the same text; None: a random seed.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = -1
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "dry_multiplier"):
            _check(name, value := getattr(self, name), value >= 0, "0 or more")
        for name in ("top_p", "typical_p"):
            _check(name, value := getattr(self, name), 0 < value <= 1, "above 0 and at most 1")
        for name in ("min_p", "xtc_probability", "xtc_threshold"):
            _check(name, value := getattr(self, name), 0 <= value <= 1, "between 0 and 1")
        for name in ("penalty_last_n", "dry_last_n"):
            _check(name, value := getattr(self, name), value >= -1, "-1 or more")
        _check("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0, "above 0")
        _check("dry_base", self.dry_base, self.dry_base >= 1, "1 or more")
        _check("dry_allowed_length", self.dry_allowed_length, self.dry_allowed_length >= 1, "1 or more")
        _check("seed", self.seed, self.seed is None or self.seed >= 0, "0 or more")
        for name in ("presence_penalty", "frequency_penalty"):
            _check(name, value := getattr(self, name), np.isfinite(value), "a finite number")
        for token, value in self.logit_bias.items():
            _check(f"logit_bias of token {token}", value, np.isfinite(value), "a finite number")

    @property
    def penalizes(self) -> bool:
        """Whether the tokens of the text are penalized."""
        neutral = self.repetition_penalty == 1 and self.presence_penalty == self.frequency_penalty == 0
        return not neutral and self.penalty_last_n != 0

    @property
    def changes_logits(self) -> bool:
        """Whether any token may become more or less probable than others before the filters."""
        return bool(self.logit_bias) or self.penalizes or self.dry_multiplier > 0


def chain(
    options: Sampling,
    text: list[int],
    random: np.random.Generator,
    breakers: Collection[int],
    constraint: Constraint | None = None,
) -> list[Step]:
    """The steps from all tokens to those that may be drawn. Steps without an effect are left out.

    text: the tokens so far; the caller adds each new one. breakers: the tokens that end a repetition.
    constraint: the grammar of the answer.
    """
    o = options
    steps: list[tuple[bool, Step]] = [
        (bool(o.logit_bias), partial(penalties.bias, biases=o.logit_bias)),
        (
            o.penalizes,
            partial(
                penalties.penalize,
                text=text,
                last=o.penalty_last_n,
                repetition=o.repetition_penalty,
                presence=o.presence_penalty,
                frequency=o.frequency_penalty,
            ),
        ),
        (
            o.dry_multiplier > 0,
            partial(
                penalties.dry,
                text=text,
                last=o.dry_last_n,
                multiplier=o.dry_multiplier,
                base=o.dry_base,
                allowed_length=o.dry_allowed_length,
                breakers=breakers,
            ),
        ),
        (o.temperature == 0, filters.greedy),
        (o.top_k > 0, partial(filters.top_k, k=o.top_k)),
        (o.typical_p < 1, partial(filters.typical, p=o.typical_p)),
        (o.top_p < 1, partial(filters.top_p, p=o.top_p)),
        (o.min_p > 0, partial(filters.min_p, p=o.min_p)),
        (
            o.xtc_probability > 0,
            partial(
                filters.exclude_top, probability=o.xtc_probability, threshold=o.xtc_threshold, random=random
            ),
        ),
        (o.temperature not in (0, 1), partial(filters.temperature, value=o.temperature)),
    ]
    first = [constraint.allow] if constraint else []
    return [*first, *(step for has_effect, step in steps if has_effect)]


class Sampler:
    """Chooses the tokens of one generation."""

    def __init__(
        self,
        sampling: Sampling,
        prompt: Iterable[int] = (),
        breakers: Collection[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        """Penalties apply to the tokens of the prompt too. `breakers` are the tokens of `dry_breakers`."""
        self.sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._text = list(prompt)
        self._constraint = constraint
        self._steps = chain(sampling, self._text, self._random, breakers, constraint)
        self._looks_at_all = constraint is not None or sampling.changes_logits

    def choose(self, logits: np.ndarray[Any, Any]) -> int:
        return self.choose_from(self.look(logits))

    def look(self, logits: np.ndarray[Any, Any]) -> Candidates:
        """What the choice needs of the logits, as a copy: all tokens, or only the most probable ones."""
        options = self.sampling
        if self._looks_at_all or not (options.temperature == 0 or options.top_k):
            return Candidates.of(logits)
        return Candidates.likely(logits, options.top_k) if options.temperature else Candidates.best(logits)

    def choose_from(self, seen: Candidates) -> int:
        """Choose a token from what `look` has seen."""
        token = self._draw(self._filtered(seen))
        self._text.append(token)
        if self._constraint:
            self._constraint.consume(token)
        return token

    @property
    def is_complete(self) -> bool:
        """Whether the grammar of the answer allows no more tokens."""
        return self._constraint is not None and self._constraint.is_complete

    def candidates(self, logits: np.ndarray[Any, Any]) -> Candidates:
        """The tokens that may be drawn next."""
        return self._filtered(self.look(logits))

    def _filtered(self, left: Candidates) -> Candidates:
        for step in self._steps:
            left = step(left)
        return left

    def _draw(self, left: Candidates) -> int:
        if len(left) == 1:
            return int(left.tokens[0])
        bounds = left.probabilities.cumsum()
        place = bounds.searchsorted(self._random.random() * bounds[-1], side="right")
        return int(left.tokens[min(int(place), len(left) - 1)])


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}: expected {expected}")
