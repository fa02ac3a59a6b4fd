"""Integers that remember how they were computed: a rule that runs on them gives formulas of its sizes.

A rule is called with `Traced` sizes, as with any others. The result of arithmetic has a formula. A
comparison gives a plain answer and notes it in a `Path`. Where a rule needs the number itself (as an index,
in a float), the path notes that the formula has this value. So what the rule gives is true wherever the
conditions of the path are.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.compiler.ir.formula import Formula

# Whether a formula is 0 or (True) negative, as (formula, whether to compare with < and not with ==).
Condition: TypeAlias = tuple[Formula, bool]


@dataclass(slots=True)
class Path:
    """The answers that comparisons gave, by condition."""

    answers: dict[Condition, bool] = field(default_factory=dict)

    def holds(self, names: Mapping[str, int]) -> bool:
        """Whether all comparisons give these answers where names have these values."""
        return all(_is_met(condition, names) == answer for condition, answer in self.answers.items())

    def fixed(self, formula: Formula, number: Any) -> Any:
        """A number that only its value stands for."""
        self.answers[formula - number, False] = True
        return number

    def note(self, formula: Formula, below: bool, answer: bool) -> bool:
        if formula.constant is None:
            self.answers[formula, below] = answer
        return answer


def _is_met(condition: Condition, names: Mapping[str, int]) -> bool:
    formula, below = condition
    value = formula.value(names)
    return value < 0 if below else value == 0


class Traced:
    """A number with its formula. It counts as an `int`: `isinstance` says so."""

    __slots__ = ("formula", "number", "path")

    def __init__(self, number: int, formula: Formula, path: Path) -> None:
        self.number, self.formula, self.path = number, formula, path

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    # -- what keeps the formula -----------------------------------------------------------------

    def __neg__(self) -> Any:
        return 0 - self  # type: ignore[operator]

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __floor__(self) -> Any:
        return self

    __ceil__ = __trunc__ = __floor__

    def __round__(self, digits: int | None = None) -> Any:
        return self

    # -- comparisons ----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        if not isinstance(other, int):
            return self.number == other
        return self.path.note(self.formula - formula_of(other), False, self.number == number_of(other))

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, float):
            if not math.isfinite(other):
                return self.number < other
            other = math.ceil(other)
        return self.path.note(self.formula - formula_of(other), True, self.number < number_of(other))

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, float):
            if not math.isfinite(other):
                return self.number > other
            other = math.floor(other)
        return self.path.note(formula_of(other) - self.formula, True, self.number > number_of(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    # -- what needs the number itself -----------------------------------------------------------

    def _as_number(self) -> int:
        number: int = self.path.fixed(self.formula, self.number)
        return number

    __index__ = __int__ = _as_number

    def __float__(self) -> float:
        return float(self._as_number())

    def __hash__(self) -> int:
        return hash(self._as_number())

    def __repr__(self) -> str:
        return str(self.number)

    def __format__(self, form: str) -> str:
        return format(self.number, form)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._as_number(), name)


def number_of(value: Any) -> Any:
    """The number of a traced one; others as they are."""
    return value.number if type(value) is Traced else value


def formula_of(value: Any) -> Formula:
    return value.formula if type(value) is Traced else Formula.number(value)


def _arithmetic(name: str, of_formulas: Callable[[Formula, Formula], Formula]) -> None:
    """Define an operation. With anything but integers, it is one of plain numbers."""
    of_numbers: Callable[[Any, Any], Any] = getattr(operator, name)

    def result(left: Any, right: Any, path: Path) -> Any:
        if name == "mul":  # a scale of 2.0
            left, right = (int(n) if isinstance(n, float) and n.is_integer() else n for n in (left, right))
        if not (isinstance(left, int) and isinstance(right, int)):
            return of_numbers(*(n._as_number() if type(n) is Traced else n for n in (left, right)))
        divides = name in ("floordiv", "mod")
        if divides and not right:
            raise ZeroDivisionError(f"{left} is divided by {right}")
        formula = of_formulas(formula_of(left), formula_of(right))
        known = formula.constant
        number = of_numbers(number_of(left), number_of(right))
        return known if known is not None else Traced(number, formula, path)

    setattr(Traced, f"__{name}__", lambda self, other: result(self, other, self.path))
    setattr(Traced, f"__r{name}__", lambda self, other: result(other, self, self.path))


def _of_number(name: str) -> None:
    """Define an operation of plain numbers."""

    def usual(self: Any, *others: Any) -> Any:
        return getattr(self._as_number(), name)(*map(number_of, others))

    setattr(Traced, name, usual)


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _arithmetic(_name, getattr(Formula, f"__{_name}__"))
for _name in ("truediv", "pow", "lshift", "rshift", "and", "or", "xor", "divmod"):
    _of_number(f"__{_name}__")
    _of_number(f"__r{_name}__")
_of_number("__invert__")
