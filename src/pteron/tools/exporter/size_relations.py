"""The sizes that the inputs of a torch program may have, as `lower/stored_sizes.py` reads them."""

from __future__ import annotations

from math import gcd, lcm
from typing import Any

import sympy
import torch
from executorch.exir.sym_util import eval_upper_bound
from torch.export import Dim, ExportedProgram
from torch.export.dynamic_shapes import _combine_args, _tree_map_with_path
from torch.utils import _pytree as pytree


def stored_sizes(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, Any]:
    """The sizes of each input, and the numbers that they follow from."""
    found = _Sizes(program, _may_be_one(dynamic_shapes))
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = []
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if isinstance(name, str) and name in nodes else None
        shape = value.shape if isinstance(value, torch.Tensor) else None
        inputs.append(None if shape is None else [found.size(size) for size in shape])
    names = _given_names(program, dynamic_shapes)
    return {
        "free": found.free,
        "names": [names.get(symbol, "") for symbol in found.symbols],
        "inputs": inputs,
    }


def _given_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[sympy.Symbol | None, str]:
    """The names that the caller gave to numbers that sizes follow from, such as `Dim("half")`."""
    if not dynamic_shapes or program.example_inputs is None:
        return {}
    given: Any = _combine_args(program.module(), *program.example_inputs)
    given = given if isinstance(dynamic_shapes, dict) else type(dynamic_shapes)(given.values())
    specs: list[Any] = []
    _tree_map_with_path(lambda path, value, spec: specs.append(spec), given, dynamic_shapes)
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    names: dict[sympy.Symbol | None, str] = {}
    for name, spec in zip(program.graph_signature.user_inputs, specs, strict=True):
        shape = getattr(nodes[name].meta.get("val"), "shape", ()) if name in nodes else ()
        for dim, size in spec.items() if isinstance(spec, dict) else enumerate(spec or ()):
            given_dim = getattr(size, "root", size)
            if isinstance(given_dim, Dim) and isinstance(shape[dim], torch.SymInt):
                for symbol in shape[dim].node.expr.free_symbols:
                    names.setdefault(symbol, given_dim.__name__)
    return names


def _may_be_one(dynamic_shapes: Any) -> bool:
    """Whether a smallest size of 2 comes from torch, which assumes it where the example is not 1."""
    given = (getattr(leaf, "root", leaf) for leaf in pytree.tree_leaves(dynamic_shapes))
    return all(getattr(size, "min", None) != 2 for size in given)


class _Sizes:
    def __init__(self, program: ExportedProgram, may_be_one: bool) -> None:
        self.free: list[list[int]] = []
        self.symbols: list[sympy.Symbol | None] = []  # of the free sizes; None: it has no relation
        self._program = program
        self._may_be_one = may_be_one
        self._numbers: dict[sympy.Symbol, int] = {}

    def size(self, size: int | torch.SymInt) -> int | list[int]:
        """A number, or [free size, times, plus]."""
        if isinstance(size, int):
            return size
        expression, most = size.node.expr, eval_upper_bound(size)
        if expression.is_number:
            return int(expression)
        times, plus = _linear(expression)
        if not times:  # a relation that is not stored: it varies on its own
            self.free.append([0, most, 1])
            self.symbols.append(None)
            return [len(self.free) - 1, 1, 0]
        (symbol,) = expression.free_symbols
        if symbol not in self._numbers:
            self._numbers[symbol] = len(self.free)
            self.symbols.append(symbol)
            self.free.append([self._smallest(symbol), (most - plus) // times, _step(size, symbol)])
        return [self._numbers[symbol], times, plus]

    def _smallest(self, symbol: sympy.Symbol) -> int:
        """What the ranges of all sizes that follow from a symbol leave."""
        smallest = 0
        for size, known in self._program.range_constraints.items():
            times, plus = _linear(size) if size.free_symbols == {symbol} else (0, 0)
            least = -((plus - int(known.lower)) // times) if times else 0
            if not (size == symbol and least == 2 and self._may_be_one):
                smallest = max(smallest, least)
        return smallest


def _linear(expression: sympy.Expr) -> tuple[int, int]:
    """(times, plus) of times * symbol + plus; times is 0 if it is not of this form."""
    if len(expression.free_symbols) != 1:
        return 0, 0
    (symbol,) = expression.free_symbols
    times, plus = expression.coeff(symbol), expression.subs(symbol, 0)
    is_linear = times.is_Integer and plus.is_Integer and sympy.expand(expression - times * symbol - plus) == 0
    return (int(times), int(plus)) if is_linear and times > 0 else (0, 0)


def _step(size: torch.SymInt, symbol: sympy.Symbol) -> int:
    """The number that the symbol must be a multiple of, because the program divides sizes."""
    env, step = size.node.shape_env, 1
    for condition in env.divisible:
        dividend, divisor = (env.replace(part) for part in condition.args)
        times = dividend.coeff(symbol)
        if divisor.is_Integer and times.is_Integer and dividend == times * symbol:
            step = lcm(step, int(divisor) // gcd(int(times), int(divisor)))
    return step
