"""Sample arguments of operators, and what the rules make of them: without a GPU, and without torch.

A sample is a function of `n`, the live size: the rule's arguments in their order, the output last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pteron.fusion
import pteron.ops  # noqa: F401  both register operators
from pteron.gpu.executor import shader_text
from pteron.ir.dispatch import Route
from pteron.ir.dtypes import DType
from pteron.ir.op import find, registered
from pteron.ir.values import Constant, Graph, Node, Port, SymInt, Tensor, ValueId, values_in
from pteron.ops import kernel as kernels
from pteron.plan.memory import Layout
from pteron.plan.sweep import LiveGraph
from pteron.pte.bytesource import ByteSource

LARGEST, SMALLER = 8, 5
FLOATS = tuple(dtype for dtype in DType if dtype.is_float)


@dataclass(frozen=True)
class T:
    """A tensor argument. No dtype: the one being looked at. Fixed: a constant of the file."""

    shape: tuple[int, ...]
    dtype: DType | None = None
    fixed: bool = False


@dataclass(frozen=True)
class Position:
    """An integer that a call gives."""


@dataclass(frozen=True)
class Sample:
    make: Callable[[int], Sequence[Any]]
    dtypes: tuple[DType, ...]


SAMPLES: dict[str, list[Sample]] = {}


def sample(names: str, make: Callable[[int], Sequence[Any]], dtypes: Iterable[DType] = FLOATS) -> None:
    """`names` stand with blanks between them; `aten.` in front and `.default` behind may be left out."""
    for name in names.split():
        SAMPLES.setdefault(_full_name(name), []).append(Sample(make, tuple(dtypes)))


def _full_name(name: str) -> str:
    for candidate in (f"aten.{name}", f"aten.{name}.default", name, f"{name}.default"):
        if find(candidate):
            return candidate
    raise KeyError(f"there is no operator {name}")


# -- a sample as a graph of one node -----------------------------------------------------------------


class OneNodeGraph:
    """A sample at its largest, and what its rule makes of a smaller one."""

    def __init__(self, name: str, sample: Sample, dtype: DType, features: Iterable[str] = ()) -> None:
        spec = find(name)
        assert spec is not None
        self.graph, self.sample, self.dtype = Graph(name), sample, dtype
        bound = spec.bind(self._values(sample.make(LARGEST)))
        node = Node(
            0,
            name,
            spec,
            bound,
            tuple(v for arg in bound[:-1] for v in values_in(arg)),
            spec.outputs(bound),
            spec.mutated(bound),
            "a sample",
        )
        self.graph.nodes.append(node)
        written = {value.id for value in node.writes}
        self.graph.inputs = [
            Port(v.name, v, "int" if isinstance(v, SymInt) else str(v.dtype), True)
            for v in self.graph.values
            if v.id not in written and (isinstance(v, SymInt) or v.constant is None)
        ]
        self.graph.outputs = [Port(str(v), v, "", True) for v in node.writes]
        self.live = LiveGraph(self.graph, Layout.of(self.graph), features)

    def _values(self, args: Any) -> Any:
        return tuple(map(self._value, args))

    def _value(self, arg: Any) -> Any:
        if isinstance(arg, (list, tuple)):
            return self._values(arg)
        if not isinstance(arg, (T, Position)):
            return arg
        place = ValueId(len(self.graph.values))
        value: Tensor | SymInt
        if isinstance(arg, T):
            constant = Constant(ByteSource(b"").region(), "float32") if arg.fixed else None
            value = Tensor(place, arg.dtype or self.dtype, arg.shape, f"v{place}", constant)
        else:
            value = SymInt(place, f"v{place}")
        self.graph.values.append(value)
        return value

    @property
    def routes(self) -> list[Route]:
        return self.live.routes[0]

    def resize(self, n: int) -> tuple[list[Any], list[Any]]:
        """The output shapes at a live size: as the rule says, and as the sample does."""
        args = self.sample.make(n)
        shapes = [arg.shape if isinstance(arg, T) else 0 for arg in _leaves(args)]
        inputs = self.graph.input_ids
        self.live.resize({v.id: s for v, s in zip(self.graph.values, shapes, strict=True) if v.id in inputs})
        outputs = self.graph.nodes[0].writes
        return [self.live.live[v.id] for v in outputs], [shapes[v.id] for v in outputs]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every kernel it may run, and the text of it."""
        for route in self.routes:
            for dispatch in route.dispatches:
                kernel = kernels.load(dispatch.kernel, dispatch.defines)
                yield dispatch.kernel, shader_text(kernel, dispatch)


def _leaves(args: Any) -> list[T | Position]:
    if isinstance(args, (T, Position)):
        return [args]
    return [leaf for arg in args for leaf in _leaves(arg)] if isinstance(args, (list, tuple)) else []


def is_integer_arithmetic(name: str) -> bool:
    """Whether an operator works on SymInts alone, on the host."""
    spec = find(name)
    return spec is not None and spec.rule.__module__ == "pteron.ops.symint"


def without_sample() -> set[str]:
    return {name for name in registered() if name not in SAMPLES and not is_integer_arithmetic(name)}
