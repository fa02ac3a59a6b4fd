"""Sizes as formulas of other sizes: sums and products of numbers, names and quotients, such as `2*n + 1`.

A formula has one form: equal sums are equal formulas. A quotient is rounded down, as in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Quotient:
    """A sum divided by another, rounded down."""

    of: Formula
    by: Formula

    def value(self, names: Mapping[str, int]) -> int:
        return self.of.value(names) // self.by.value(names)

    def __str__(self) -> str:
        return f"{self.of.as_factor()}//{self.by.as_factor()}"


# A factor is a name or a quotient.
Product: TypeAlias = "tuple[str | Quotient, ...]"
NOTHING: Product = ()


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of products, each times a number. `Formula.name("n") * 2 + 1` is 2*n + 1."""

    terms: tuple[tuple[Product, int], ...]  # in the order in which they are shown

    @classmethod
    def of(cls, terms: Mapping[Product, int]) -> Formula:
        kept = [(product, times) for product, times in terms.items() if times]
        return cls(tuple(sorted(kept, key=lambda term: (-len(term[0]), *map(str, term[0])))))

    @classmethod
    def name(cls, name: str) -> Formula:
        return cls((((name,), 1),))

    @classmethod
    def number(cls, number: int) -> Formula:
        return cls(((NOTHING, number),) if number else ())

    @property
    def constant(self) -> int | None:
        """The number that it is. None: it depends on names."""
        if not self.terms:
            return 0
        (product, times), *others = self.terms
        return times if not product and not others else None

    @property
    def names(self) -> set[str]:
        found: set[str] = set()
        for product, _ in self.terms:
            for factor in product:
                found |= {factor} if isinstance(factor, str) else factor.of.names | factor.by.names
        return found

    def value(self, names: Mapping[str, int]) -> int:
        """The number where the names have these values."""
        total = 0
        for product, times in self.terms:
            for factor in product:
                times *= names[factor] if isinstance(factor, str) else factor.value(names)
            total += times
        return total

    def where(self, names: Mapping[str, Formula]) -> Formula:
        """The formula with other formulas in the place of names."""
        total = Formula(())
        for product, times in self.terms:
            term = Formula.number(times)
            for factor in product:
                if isinstance(factor, str):
                    term *= names.get(factor, Formula.name(factor))
                else:
                    term *= factor.of.where(names) // factor.by.where(names)
            total += term
        return total

    # -- arithmetic -----------------------------------------------------------------------------

    def __add__(self, other: Formula | int) -> Formula:
        return _sum(self, as_formula(other))

    def __sub__(self, other: Formula | int) -> Formula:
        return _sum(self, _times(as_formula(other), MINUS_ONE))

    def __mul__(self, other: Formula | int) -> Formula:
        return _times(self, as_formula(other))

    def __floordiv__(self, other: Formula | int) -> Formula:
        return _quotient(self, as_formula(other))

    def __mod__(self, other: Formula | int) -> Formula:
        return self - self // other * other

    # -- text -----------------------------------------------------------------------------------

    def __str__(self) -> str:
        text = ""
        for product, times in _with_small_rest(self).terms:
            factors = [factor if isinstance(factor, str) else str(factor) for factor in product]
            if abs(times) != 1 or len(product) > 1:
                factors = [f"({text})" if "/" in text else text for text in factors]
            term = "*".join(([str(abs(times))] if abs(times) != 1 or not product else []) + factors)
            sign = "-" if times < 0 else "+"
            text += f" {sign} {term}" if text else f"-{term}" if times < 0 else term
        return text or "0"

    def as_factor(self) -> str:
        """The text, in parentheses where a product needs them."""
        simple = len(self.terms) < 2 and all(times > 0 for _, times in self.terms)
        single = sum(len(product) + (times != 1) for product, times in self.terms) <= 1
        return str(self) if simple and single else f"({self})"


def as_formula(number: Formula | int) -> Formula:
    return number if isinstance(number, Formula) else Formula.number(number)


MINUS_ONE = Formula.number(-1)
# Rules compute the same sizes again and again.
_remembered = lru_cache(maxsize=1 << 16)


@_remembered
def _sum(one: Formula, other: Formula) -> Formula:
    terms = dict(one.terms)
    for product, times in other.terms:
        terms[product] = terms.get(product, 0) + times
    return Formula.of(terms)


@_remembered
def _times(one: Formula, other: Formula) -> Formula:
    terms: dict[Product, int] = {}
    for mine, times in one.terms:
        for theirs, more in other.terms:
            product = tuple(sorted((*mine, *theirs), key=str))
            terms[product] = terms.get(product, 0) + times * more
    return Formula.of(terms)


@_remembered
def _quotient(formula: Formula, by: Formula) -> Formula:
    if by.constant:
        return _divided(formula, by.constant)
    exact = _without(formula, by)
    return exact if exact is not None else Formula((((Quotient(formula, by),), 1),))


def _divided(formula: Formula, by: int) -> Formula:
    """A formula divided by a number. What it divides without a rest leaves the quotient."""
    if by < 0:
        return _divided(formula * -1, -by)
    whole = Formula.of({product: times // by for product, times in formula.terms if times % by == 0})
    rest = Formula.of({product: times for product, times in formula.terms if times % by})
    constant = rest.constant
    if constant is not None:
        return whole + constant // by
    number = dict(rest.terms).get(NOTHING, 0)
    varying = rest - number
    if varying.terms[0][1] < 0:  # n // -d rounds up
        return whole - _divided(varying * -1 - number + by - 1, by)
    common = reduce(gcd, (times for _, times in varying.terms), by)
    varying = Formula.of({product: times // common for product, times in varying.terms})
    number, by = number // common, by // common
    if by == 1:
        return whole + varying + number
    ((product, times), *others) = varying.terms
    if not others and times == 1 and len(product) == 1 and isinstance(product[0], Quotient):
        inner = product[0].by.constant
        if inner is not None and inner > 0:  # (n//2 + 1)//2 is (n + 2)//4
            return whole + _divided(product[0].of + number * inner, inner * by)
    whole, number = whole + number // by, number % by
    return whole + Formula((((Quotient(varying + number, Formula.number(by)),), 1),))


def _without(formula: Formula, by: Formula) -> Formula | None:
    """A formula without a product that all its terms have."""
    if len(by.terms) != 1:
        return Formula.number(1) if formula == by else None
    ((gone, number),) = by.terms
    terms: dict[Product, int] = {}
    for product, times in formula.terms:
        left = list(product)
        for factor in gone:
            if factor not in left:
                return None
            left.remove(factor)
        if times % number:
            return None
        terms[tuple(left)] = times // number
    return Formula.of(terms)


def _with_small_rest(formula: Formula) -> Formula:
    """(n + 1)//2 - 1 as (n - 1)//2, for people."""
    match formula.terms:
        case (((Quotient(of, by),), 1), ((), number)) if by.constant:
            return Formula((((Quotient(of + by * number, by),), 1),))
    return formula
