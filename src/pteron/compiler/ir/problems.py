"""The problems of a program, collected in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pteron.errors import UnsupportedError

SHOWN_PLACES = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a program that Pteron cannot run: what, where, and why."""

    what: str
    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and all places where it occurs."""

    method: str
    what: str
    why: str
    places: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.places)

    @property
    def shown_places(self) -> str:
        """The first few places, in one line."""
        return "; ".join(self.places[:SHOWN_PLACES]) + ("; ..." if self.count > SHOWN_PLACES else "")

    def __str__(self) -> str:
        return f"{self.what}  ×{self.count}  ({self.shown_places}): {self.why}"


class CannotRun(UnsupportedError):
    """An error that lists problems, and keeps them."""

    def __init__(self, message: str, problems: Mapping[str, Sequence[Problem]]) -> None:
        super().__init__(message)
        self.problems = problems


def findings(problems: Mapping[str, Sequence[Problem]]) -> list[Finding]:
    """The problems of each method in program order. Equal problems are grouped."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for method, found in problems.items():
        for problem in found:
            places.setdefault((method, problem.what, problem.why), []).append(problem.where)
    return [Finding(*key, tuple(where)) for key, where in places.items()]


def unsupported(problems: Mapping[str, Sequence[Problem]]) -> CannotRun:
    """One error that lists all problems."""
    lines = []
    for method in problems:
        found = findings({method: problems[method]})
        if found:
            things = "one thing" if len(found) == 1 else f"{len(found)} things"
            lines.append(f"method '{method}' asks for {things} that Pteron cannot do:")
            lines += [f"  {finding}" for finding in found]
    return CannotRun("\n".join(lines), problems)
