"""Choose a token from logits, with the methods of llama.cpp in its default order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from pteron.llm import candidates as filters
from pteron.llm import penalties
from pteron.llm.candidates import Candidates
from pteron.llm.grammar import Constraint
from pteron.llm.options import Sampling

Step: TypeAlias = Callable[[Candidates], Candidates]


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
