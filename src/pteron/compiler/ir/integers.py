"""Intervals of integers, and which of their bits somebody needs.

A 64-bit integer is stored in one word if its interval fits, or if all that is computed from it depends only
on the low word. Sums and products modulo 2**32 do.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]  # the smallest and the largest value

INT32: Interval = (-(2**31), 2**31 - 1)
INT64: Interval = (-(2**63), 2**63 - 1)


class Demand(IntFlag):
    """What is needed of an integer."""

    INDEX = 1  # it is an index: another value would be refused, so it fits one word
    LOW_WORD = 2  # its low word
    WORD = 4  # all of it, by an operator that takes one word only
    ALL_BITS = 8  # all of it


INDEX, LOW, WORD, ALL = Demand.INDEX, Demand.LOW_WORD, Demand.WORD, Demand.ALL_BITS
EXACT = WORD | ALL  # the value itself is needed, not only its low word


def fits(interval: Interval) -> bool:
    """Whether all integers of the interval fit in one word."""
    return interval[0] >= INT32[0] and interval[1] <= INT32[1]


def within(low: int, high: int) -> Interval:
    """The interval, or all integers if a result may wrap around."""
    return (low, high) if low >= INT64[0] and high <= INT64[1] else INT64


def hull(*intervals: Interval) -> Interval:
    """The smallest interval with all of them."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def both(a: Interval, b: Interval) -> Interval:
    """The integers that are in two intervals; `a` if there are none."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a
