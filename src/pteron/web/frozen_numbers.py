"""Formulas in a frozen program, as JSON that `formulas.js` reads.

A name is a number: its place in the list of names. A formula is a number; or a list of terms, each a list: a
number, and what it is multiplied with. A factor from 0 on is a name, and -1 - k is quotient k of the program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pteron.compiler.ir.formula import Formula, Quotient
from pteron.compiler.plan.traced import Path

T = TypeVar("T")


@dataclass(slots=True)
class Interned(Generic[T]):
    """Numbers for things that occur often."""

    numbers: dict[T, int] = field(default_factory=dict)

    def number(self, thing: T) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))


class FrozenNumbers:
    """The names, quotients and paths of a frozen program."""

    def __init__(self, names: list[str]) -> None:
        self._names = {name: place for place, name in enumerate(names)}
        self._quotients = Interned[Quotient]()
        self.quotients: list[list[Any]] = []
        self._paths = Interned[str]()

    @property
    def count(self) -> int:
        """The number of names."""
        return len(self._names)

    def name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def formula(self, formula: Formula) -> Any:
        known = formula.constant
        if known is not None:
            return known
        return [[times, *map(self._factor, product)] for product, times in formula.terms]

    def _factor(self, factor: str | Quotient) -> int:
        if isinstance(factor, str):
            return self.name(factor)
        number = self._quotients.numbers.get(factor)
        if number is None:
            of, by = self.formula(factor.of), self.formula(factor.by)  # those inside come first
            number = self._quotients.number(factor)
            self.quotients.append([of, by])
        return -1 - number

    def path(self, path: Path) -> list[list[Any]]:
        """Conditions as (formula, whether it is compared with < 0 and not with == 0, the answer)."""
        return [[self.formula(f), int(below), int(answer)] for (f, below), answer in path.answers.items()]
