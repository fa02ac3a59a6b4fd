"""The largest sizes of a program's inputs. Lowering must not change them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from executorch.backends.vulkan import utils as vulkan_utils
from executorch.exir.sym_util import eval_expr, eval_upper_bound
from torch.export import ExportedProgram
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from pteron.tools.exporter.replaced import replaced

Bounds = dict[str, int]  # by the name of a dimension, such as x[0]


def dynamic_sizes(program: ExportedProgram) -> dict[str, torch.SymInt]:
    """The dynamic dimensions of the inputs, by name."""
    inputs = set(program.graph_signature.user_inputs)
    return {
        f"{node.name}[{dim}]": size
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in inputs and isinstance(node.meta.get("val"), torch.Tensor)
        for dim, size in enumerate(node.meta["val"].shape)
        if isinstance(size, torch.SymInt)
    }


def upper_bounds(program: ExportedProgram) -> Bounds:
    return {name: eval_upper_bound(size) for name, size in dynamic_sizes(program).items()}


def bound_sizes(program: ExportedProgram) -> tuple[str, ...]:
    """Limit sizes without a maximum to those of the example. Returns a note for each such dimension.

    ExecuTorch allocates memory for the largest size, so there must be one.
    """
    notes = []
    for name, size in dynamic_sizes(program).items():
        symbols = [s for s in size.node.expr.free_symbols if _range(size, s).upper is int_oo]
        if symbols:
            notes.append(f"{name} has no maximum: it is at most {eval_expr(size)}, as in the example")
        for symbol in symbols:
            env = size.node.shape_env
            largest = int(env.guarding_hint_or_throw(symbol))
            env.var_to_range[symbol] = ValueRanges(_range(size, symbol).lower, largest)
            if symbol in program.range_constraints:
                low = program.range_constraints[symbol].lower
                program.range_constraints[symbol] = ValueRanges(low, largest)
    return tuple(notes)


def changed_bounds(program: ExportedProgram, wanted: Bounds) -> tuple[str, ...]:
    """The sizes of a lowered program that have another maximum, or have become constants."""
    bounds = upper_bounds(program)
    return tuple(
        f"{name} is at most {bounds[name]}, not {most}" if name in bounds else f"{name} is a constant"
        for name, most in wanted.items()
        if bounds.get(name) != most
    )


def bounds_stay() -> AbstractContextManager[None]:
    """Keep ExecuTorch from limiting a size to the largest texture.

    It asks whether a dynamic size fits. The answer becomes a condition of the program. Ask for the largest
    size instead: a tensor that is too large for a texture is stored in a buffer.
    """

    def mend(before: Any) -> Any:
        return lambda extents, limits: bool(before(tuple(map(eval_upper_bound, extents)), limits))

    return replaced(vulkan_utils, "extents_are_valid", mend)


def _range(size: torch.SymInt, symbol: Any) -> Any:
    return size.node.shape_env.var_to_range[symbol]
