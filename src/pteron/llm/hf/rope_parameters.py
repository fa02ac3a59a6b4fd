"""Rotary frequencies from the `rope_parameters` of a config.json, which older files call `rope_scaling`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isfinite, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.rotary import frequencies, rotary
from pteron.llm.hf.settings import Settings

Frequencies = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a kind of scaling is made from."""

    parameters: Settings
    base: float
    size: int  # elements of a head that are rotated
    context: int  # the positions that the model was trained for
    first_context: int  # those of the first training, before the context was extended

    @property
    def values(self) -> Frequencies:
        return frequencies(self.base, self.size)

    @property
    def factor(self) -> float:
        return self.parameters.require(float, "factor")


def read_rotary(
    parameters: Settings, base: float, size: int, context: int, first_context: int | None = None
) -> Rotary:
    """The rotation that `parameters` describe. They may state the first context, too."""
    first = parameters.get(int, "original_max_position_embeddings", default=first_context or context)
    kind = parameters.get(str, "rope_type", "type", default="default")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise UnsupportedError(
            f"{parameters.source}: the rotary scaling {kind!r} is not supported; these are: {known}"
        )
    if size < 2 or size % 2 or not base > 0 or first < 2:
        raise FormatError(
            f"{parameters.source}: {size} elements cannot be rotated with the base {base}, "
            f"trained for {first} positions"
        )
    try:
        with np.errstate(all="ignore"):  # the result is checked instead
            made = KINDS[kind](Scaling(parameters, base, size, context, first))
        sound = all(isfinite(number) for number in _numbers(made))
    except (ArithmeticError, ValueError):
        sound = False
    if not sound:
        given = str(parameters.entries)[:200]
        raise FormatError(f"{parameters.source}: these numbers give no rotation: {given}")
    return made


def _numbers(rotary: Rotary) -> Iterator[float]:
    yield rotary.gain
    yield from rotary.frequencies
    if rotary.longer is not None:
        yield from _numbers(rotary.longer)


def _default(given: Scaling) -> Rotary:
    return rotary(given.values)


def _linear(given: Scaling) -> Rotary:
    return rotary(given.values / given.factor)


def _llama3(given: Scaling) -> Rotary:
    """Slow frequencies are divided by the factor, fast ones stay, and those between are blended."""
    low = given.parameters.require(float, "low_freq_factor")
    high = given.parameters.require(float, "high_freq_factor")
    turns = given.first_context * given.values / (2 * pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return rotary(given.values * (share + (1 - share) / given.factor))


def _yarn(given: Scaling) -> Rotary:
    """As llama3, with other limits between slow and fast; cos and sin are larger."""
    parameters, factor = given.parameters, given.factor
    fast = parameters.get(float, "beta_fast", default=32.0)
    slow = parameters.get(float, "beta_slow", default=1.0)

    def pair_that_turns(times: float) -> float:
        """The number of the pair that turns this many times in the first context."""
        return given.size * log(given.first_context / (times * 2 * pi)) / (2 * log(given.base))

    first, last = pair_that_turns(fast), pair_that_turns(slow)
    if parameters.get(bool, "truncate", default=True):
        first, last = np.floor(first), np.ceil(last)
    first, last = max(first, 0), min(last, given.size - 1)
    ramp = (np.arange(given.size // 2) - first) / max(last - first, 0.001)
    slowed = np.clip(ramp, 0, 1)
    return rotary(given.values * (1 - slowed + slowed / factor), _yarn_gain(parameters, factor))


def _yarn_gain(parameters: Settings, factor: float) -> float:
    stated = parameters.find(float, "attention_factor")
    if stated is not None:
        return stated

    def gain(weight: float) -> float:
        return 0.1 * weight * log(factor) + 1 if factor > 1 else 1.0

    one, all_ = parameters.find(float, "mscale"), parameters.find(float, "mscale_all_dim")
    return gain(one) / gain(all_) if one and all_ else gain(1.0)


def _longrope(given: Scaling) -> Rotary:
    """Each frequency has its own divisor: one for short contexts and one for long contexts."""
    parameters, first = given.parameters, given.first_context
    factor = parameters.get(float, "factor", default=given.context / first)
    gain = parameters.find(float, "attention_factor")
    if gain is None:
        gain = sqrt(1 + log(factor) / log(first)) if factor > 1 else 1.0

    def divided(name: str) -> Rotary:
        divisors = np.array(parameters.require(list, name), np.float64)
        if divisors.shape != given.values.shape or not (divisors > 0).all():
            raise FormatError(
                f"{parameters.source}: {name!r} should have {len(given.values)} positive numbers"
            )
        return rotary(given.values / divisors, gain)

    return replace(divided("short_factor"), longer=divided("long_factor"), short_context=first)


KINDS: dict[str, Callable[[Scaling], Rotary]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,  # it differs only beyond the trained context, which is not used
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # its first name
}
