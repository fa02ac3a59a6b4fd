"""An interrupt at each line of a sweep that is refused or only tried: the next one begins where it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Tensor, ValueId
from pteron.compiler.plan.dynamic import refusal
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError
from tests.support.faults import each_line
from tests.support.sketch import Sketch, live

Changes = dict[ValueId, Live]


class Program:
    """Two inputs of one length that meet in a product, and a cache with a position."""

    def __init__(self) -> None:
        s = Sketch()
        self.a, self.b, self.k = s.input(1, 64), s.input(1, 64), s.input(1, 16, 2, 8)
        cache = s.constant(1, 64, 2, 8)
        self.position = s.integer()
        c = s.add("aten.tanh.default", self.a, shape=(1, 64))
        n = s.add("sym_size.int", c, 1)
        s.add("update_cache.default", self.k, cache, self.position, shape=(0,))
        d = s.add("aten.mul.Tensor", c, self.b, shape=(1, 64))
        y = s.add("aten.view_copy.default", d, (n, 1), shape=(64, 1))
        s.graph.states = [cache]
        self.graph = s.finish(y)

    def at(self, a: int, b: int, rows: int, position: int) -> Changes:
        k: Tensor = self.k
        shapes: Changes = {self.a.id: (1, a), self.b.id: (1, b), k.id: (1, rows, 2, 8)}
        return {**shapes, self.position.id: position}


def seen(swept: LiveGraph) -> tuple[list[Live], list[Any]]:
    """Everything that a call takes from a sweep."""
    assert all(plan is not None for plan in swept.plans)
    plans = [
        (plan.results, plan.route, [(d.params, d.grid) for d in plan.dispatches])
        for plan in swept.plans
        if plan is not None
    ]
    return list(swept.current), plans


def take_back(swept: LiveGraph, changes: Changes) -> None:
    """A call refuses an index only after the sweep."""
    swept.begin(changes)
    swept.undo()


ATTEMPTS: dict[str, Callable[[Program, LiveGraph], object]] = {
    "lengths that do not fit": lambda p, swept: swept.sweep(p.at(7, 9, 4, 11)),
    "a position beyond the cache": lambda p, swept: swept.sweep(p.at(7, 7, 16, 60)),
    "only the position": lambda p, swept: swept.sweep({p.position.id: 64}),
    "an index out of range": lambda p, swept: take_back(swept, p.at(7, 7, 2, 8)),
    "a preview": lambda p, swept: swept.preview(p.at(7, 7, 2, 8)),
    "a refused preview": lambda p, swept: swept.preview(p.at(7, 9, 2, 8)),
    "why a size is static": lambda p, swept: refusal(swept, p.graph.inputs[0], 1),
}


@pytest.mark.parametrize("name", ATTEMPTS)
@pytest.mark.parametrize("following", [(7, 7, 2, 8), (9, 9, 4, 11), (5, 5, 1, 3)], ids=str)
def test_the_next_sweep_is_right(name: str, following: tuple[int, int, int, int]) -> None:
    program = Program()
    swept, fresh = live(program.graph), live(program.graph)
    before, after = program.at(5, 5, 1, 3), program.at(*following)
    fresh.sweep(after)
    swept.sweep(before)
    count = 0
    for _ in each_line(lambda: ATTEMPTS[name](program, swept), InputError):
        swept.sweep(after)
        assert seen(swept) == seen(fresh), f"after {count} lines"
        swept.sweep(before)
        count += 1
    assert count > 10


def test_plans_that_are_forgotten_after_an_interrupt_do_not_come_back() -> None:
    """A thread that has compiled a faster route asks for this at any time."""
    program = Program()
    swept = live(program.graph)
    swept.sweep(program.at(5, 5, 1, 3))
    for _ in each_line(lambda: swept.sweep(program.at(7, 9, 4, 11)), InputError):
        old = [plan for plan in swept.plans if plan is not None]
        swept.forget()
        swept.sweep(program.at(5, 5, 1, 3))
        assert not any(plan is other for plan in swept.plans for other in old)
