"""One operator with sample arguments, and a numpy function that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pteron.ir.dtypes import DType
from pteron.ir.op import find
from pteron.ir.values import Arg, Constant, Graph, Node, Port, Tensor, values_in
from pteron.pte.bytesource import ByteSource

Array: TypeAlias = Any  # of numpy. Its own type would make the short references long
SIZES = (9, 3, 1, 6)  # the largest first, then others in changing order
NEVER_WRITTEN = np.full(1, np.nan)  # an output that no kernel writes stays poisoned


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant of the program, such as a weight."""

    array: Array


@dataclass(frozen=True, slots=True)
class Position:
    """An integer that a call gives."""

    value: int


class Draw:
    """Random arguments. The constants are the same at every live size."""

    def __init__(self, dtype: Any = np.float32) -> None:
        self._dtype = dtype
        self._inputs = np.random.default_rng(1)
        self._constants = np.random.default_rng(2)

    def x(self, *shape: int) -> Array:
        """Normal floats of the case's element type."""
        return self._inputs.standard_normal(shape).astype(self._dtype)

    def positive(self, *shape: int) -> Array:
        return self._inputs.uniform(0.5, 2, shape).astype(self._dtype)

    def f32(self, *shape: int) -> Array:
        return self._inputs.standard_normal(shape).astype(np.float32)

    def whole(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> Array:
        """Integers from `low` up to and without `high`."""
        return self._inputs.integers(low, high, shape).astype(dtype)

    def flags(self, *shape: int) -> Array:
        return self._inputs.integers(0, 2, shape).astype(bool)

    def weight(self, *shape: int) -> Fixed:
        return Fixed(self._constants.standard_normal(shape).astype(self._dtype))

    def scales(self, *shape: int) -> Fixed:
        """A constant with positive float32 elements."""
        return Fixed(self._constants.uniform(0.05, 0.2, shape).astype(np.float32))

    def bias(self, *shape: int) -> Fixed:
        return Fixed(self._constants.standard_normal(shape).astype(np.float32))

    def codes(self, low: int, high: int, *shape: int, dtype: Any = np.int8) -> Fixed:
        return Fixed(self._constants.integers(low, high, shape).astype(dtype))


@dataclass(frozen=True, slots=True)
class Case:
    op: str
    make: Callable[..., Sequence[Any]]  # (draw, live size) -> the arguments without the outputs
    reference: Callable[..., Any]  # the outputs, and then the tensors that the operator changes in place
    sizes: tuple[int, ...] = SIZES
    dtype: Any = np.float32

    @property
    def label(self) -> str:
        return f"{self.op} of {np.dtype(self.dtype).name}"

    def arguments(self, size: int) -> list[Any]:
        return list(self.make(Draw(self.dtype), size))

    def expected(self, arguments: Sequence[Any]) -> list[Array]:
        """Floats are computed in float64, so the reference is more exact than any kernel."""
        given = _replaced(arguments, _for_numpy)
        with np.errstate(all="ignore"):
            made = self.reference(*given)
        arrays = [np.asarray(array) for array in (made if isinstance(made, (list, tuple)) else [made])]
        return [_narrow(array, self.dtype) for array in arrays]


CASES: list[Case] = []


def case(
    op: str,
    make: Callable[..., Sequence[Any]],
    reference: Callable[..., Any],
    sizes: tuple[int, ...] = SIZES,
    dtypes: Sequence[Any] = (np.float32,),
) -> None:
    for dtype in dtypes:
        CASES.append(Case(op, make, reference, sizes, dtype))


@dataclass(slots=True)
class CaseProgram:
    """The graph of a case, for arguments up to its largest size. Its results are those of the reference."""

    case: Case
    graph: Graph = field(init=False)
    outputs: int = field(init=False)  # the others are tensors that the operator changes in place

    def __post_init__(self) -> None:
        self.graph = Graph(self.case.op)
        spec = find(self.case.op)
        assert spec is not None, f"there is no operator {self.case.op}"
        given = self.case.arguments(max(self.case.sizes))
        args = _replaced(given, self._value)
        mutated = spec.mutated((*args, None))
        results = self.case.expected(given)
        self.outputs = len(results) - len(mutated)
        outs = tuple(
            self.graph.tensor(_dtype(array), array.shape, f"out{number}")
            for number, array in enumerate(results[: self.outputs])
        )
        listed = spec.parameters[-1] == "outs"
        bound = spec.bind((*args, outs if listed else outs[0] if outs else None))
        reads = tuple(value for arg in bound[:-1] for value in values_in(arg))
        self.graph.nodes = [
            Node(0, self.case.op, spec, bound, reads, spec.outputs(bound), spec.mutated(bound), self.case.op)
        ]
        self.graph.outputs = [
            Port(f"output{number}", tensor, tensor.dtype.label, True)
            for number, tensor in enumerate((*outs, *mutated))
        ]

    def inputs(self, arguments: Sequence[Any]) -> list[Any]:
        """What a call of the method takes."""
        found: list[Any] = []

        def keep(leaf: Any) -> None:
            if isinstance(leaf, np.ndarray):
                found.append(leaf)
            elif isinstance(leaf, Position):
                found.append(leaf.value)

        _replaced(arguments, keep)
        return found

    def _value(self, leaf: Any) -> Arg:
        graph = self.graph
        if isinstance(leaf, Fixed):
            constant = Constant(ByteSource(leaf.array.tobytes()).region(), leaf.array.dtype.name)
            return graph.tensor(_dtype(leaf.array), leaf.array.shape, f"c{len(graph.values)}", constant)
        if isinstance(leaf, Position):
            symint = graph.symint(f"n{len(graph.values)}")
            graph.inputs.append(Port(symint.name, symint, "int", True))
            return symint
        if isinstance(leaf, np.ndarray):
            tensor: Tensor = graph.tensor(_dtype(leaf), leaf.shape, f"x{len(graph.values)}")
            graph.inputs.append(Port(tensor.name, tensor, leaf.dtype.name, True))
            return tensor
        return leaf  # type: ignore[no-any-return]


def _replaced(args: Any, replace: Callable[[Any], Any]) -> Any:
    """The arguments with every leaf replaced, also in lists."""
    if isinstance(args, (list, tuple)):
        return tuple(_replaced(arg, replace) for arg in args)
    return replace(args)


def _for_numpy(leaf: Any) -> Any:
    if isinstance(leaf, Position):
        return leaf.value
    array = leaf.array if isinstance(leaf, Fixed) else leaf
    if not isinstance(array, np.ndarray):
        return array
    return array.astype(np.float64) if array.dtype.kind == "f" else array.copy()


def _narrow(array: Array, dtype: Any) -> Array:
    if array.dtype == np.float64:
        return array.astype(dtype)
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _dtype(array: Array) -> DType:
    return DType[array.dtype.name]
