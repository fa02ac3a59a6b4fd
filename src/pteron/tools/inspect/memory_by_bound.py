"""The memory of a method at smaller bounds: what `load(shapes=)` would allocate. No GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pteron.compiler.ir.sizes import FreeSize
from pteron.compiler.ir.values import Graph, Port, Tensor
from pteron.compiler.lower.bounds import Bound, GivenShapes
from pteron.compiler.pipeline import AS_STORED, PORTABLE, GraphOptions, Target, lower
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import MemoryInfo, memory_of

HALVINGS = 4

ByDim = dict[str, dict[int, int]]  # sizes by input and dimension


@dataclass(frozen=True, slots=True)
class BoundedMemory:
    """The memory of a method where some sizes have smaller bounds.

    Attributes:
        bounds: The largest sizes of dimensions that vary, by input and dimension, as `load(shapes=)` takes
            them. Dimensions without one keep theirs.
        memory: What a load with these bounds allocates.
    """

    bounds: ByDim
    memory: MemoryInfo

    def __str__(self) -> str:
        """For example x[1] <= 512, mask[1] <= 512."""
        return ", ".join(f"{name}[{d}] <= {n}" for name, dims in self.bounds.items() for d, n in dims.items())


def memory_by_bound(
    file: ProgramFile, method: str, *, options: GraphOptions = AS_STORED, target: Target = PORTABLE
) -> list[BoundedMemory]:
    """The memory of a method at its largest sizes, and where those that vary together are halved."""
    live = lower(file, [method], options).plan_method(method, target)
    found = [BoundedMemory({}, memory_of(live))]
    for bounds in _halved(live):
        shapes = _with_given(live.graph, options.shapes, bounds)
        with suppress(InputError):  # some programs refuse some sizes
            smaller = lower(file, [method], replace(options, shapes=shapes)).plan_method(method, target)
            found.append(BoundedMemory(bounds, memory_of(smaller)))
    return found


def _halved(live: LiveGraph) -> Iterator[ByDim]:
    """Bounds for the dimensions that vary together: a half of the largest size, a quarter, and so on."""
    names = {port.value.id: port.name for port in live.graph.inputs if isinstance(port.value, Tensor)}
    for free, places in find_sizes(live).together.items():
        for value in _halves(free):
            bounds: ByDim = {}
            for tensor, dim, size in places:
                bounds.setdefault(names[tensor], {})[dim] = size.where(value)
            yield bounds


def _halves(free: FreeSize) -> list[int]:
    values = free.values
    halves = (range(values.start, values[-1] // 2**n + 1, values.step) for n in range(1, HALVINGS + 1))
    return list(dict.fromkeys(smaller[-1] for smaller in halves if smaller and smaller[-1] > 0))


def _with_given(graph: Graph, given: GivenShapes | None, bounds: ByDim) -> GivenShapes:
    """These bounds, and what the graph was limited to in other dimensions."""
    shapes: dict[str, Any] = dict(given or {})
    for port in graph.inputs:
        if port.name in bounds:
            shapes[port.name] = {**_limits(port), **bounds[port.name]}
    return shapes


def _limits(port: Port) -> dict[int, Bound]:
    most = port.max_shape
    return {d: (most[d], most[d]) if d in port.pinned else most[d] for d in port.limited}
