"""Smaller largest sizes than the file's: a choice at load.

    with_bounds(graph, InputBounds({"x": {1: 512}}))      # at most 512 in dimension 1 of x
    with_bounds(graph, InputBounds({"x": (1, 512, 64)}))
    with_bounds(graph, InputBounds({"x": {1: (512, 512)}}))  # always 512

The rules of the operators give the shape of every tensor at the bound, and all memory follows from these
shapes. A size that does not grow with the inputs, or that follows from an integer of a call, keeps the
file's bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pteron.compiler.ir.dispatch import describe
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize, Size, Sizes
from pteron.compiler.ir.values import Graph, Port, Shape, SymInt, Tensor, ValueId
from pteron.compiler.lower.cache_dtype import with_tensors
from pteron.compiler.lower.port_names import PortNames
from pteron.compiler.plan.dynamic import find_sizes, refusal
from pteron.compiler.plan.sweep import LiveGraph, plan
from pteron.errors import InputError
from pteron.pte import schema
from pteron.pte.file import ProgramFile

Bound: TypeAlias = "int | tuple[int, int]"  # at most this; or always this, written twice
GivenShapes: TypeAlias = "Mapping[str, Mapping[int, Bound] | Iterable[Bound | None]]"

INTEGERS_TO_TRY = (0, 1, 2)  # for integers that only a call gives


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest size of a dimension, or the only one."""

    most: int
    pinned: bool = False

    def __str__(self) -> str:
        return f"{self.most}..{self.most}" if self.pinned else str(self.most)


class InputBounds:
    """The bounds that a caller gives, by input and dimension."""

    def __init__(self, shapes: GivenShapes) -> None:
        self._shapes = {name: _limits(name, given) for name, given in shapes.items()}

    def check(self, file: ProgramFile) -> None:
        """Refuse names and dimensions that no method has, and bounds above those of all methods."""
        largest: dict[str, list[Shape]] = {}
        for method in file.method_names:
            stored = file.plan(method)
            names = PortNames(file, stored)
            for number, index in enumerate(stored.inputs):
                tensor = stored.values[index].val
                if isinstance(tensor, schema.Tensor):
                    largest.setdefault(names.input(number), []).append(tuple(tensor.sizes))
        for name, limits in self._shapes.items():
            if name not in largest:
                known = ", ".join(largest) or "none"
                raise InputError(f"shapes: there is no tensor input {name!r}; the inputs are {known}")
            fitting = [shape for shape in largest[name] if _fits(limits, shape)]
            if not fitting:
                raise InputError(
                    f"shapes: {name} has at most the shape {describe(largest[name][0])}: "
                    f"give a bound for each dimension, or some by number, such as {{{name!r}: {{0: 1}}}}"
                )
            for dim, limit in _by_dim(limits):
                most = max(shape[dim] for shape in fitting)
                if limit.most > most:
                    raise InputError(
                        f"shapes: {name}[{dim}] is at most {most} in the file, not {limit}: "
                        "give a smaller bound, or export with a larger one"
                    )

    def of(self, port: Port) -> dict[int, Limit]:
        """The bounds of an input, by dimension."""
        limits = self._shapes.get(port.name, {})
        return dict(_by_dim(limits)) if _fits(limits, port.max_shape) else {}


# By dimension. A whole shape has one more entry, WHOLE: the number of its dimensions.
Limits: TypeAlias = dict[int, Limit]
WHOLE = -1


def _limits(name: str, given: Any) -> Limits:
    if isinstance(given, Mapping):
        items, whole = dict(given), {}
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        listed = list(given)
        items = {dim: bound for dim, bound in enumerate(listed) if bound is not None}
        whole = {WHOLE: Limit(len(listed))}
    else:
        raise InputError(f"shapes: {name} needs a shape or a bound by dimension, got {given!r}")
    if not all(isinstance(dim, int) and dim >= 0 for dim in items):
        raise InputError(f"shapes: {name} has dimensions by their numbers from 0, got {given!r}")
    return whole | {dim: _limit(f"{name}[{dim}]", bound) for dim, bound in items.items()}


def _limit(name: str, bound: Any) -> Limit:
    low, high = bound if isinstance(bound, (tuple, list)) and len(bound) == 2 else (None, bound)
    if not isinstance(high, int) or isinstance(high, bool) or high < 1 or low not in (None, high):
        raise InputError(
            f"shapes: the bound of {name} must be a size from 1, or one size twice, such as (512, 512), "
            f"for always 512: got {bound!r}"
        )
    return Limit(high, low is not None)


def _by_dim(limits: Limits) -> Iterator[tuple[int, Limit]]:
    return ((dim, limit) for dim, limit in limits.items() if dim != WHOLE)


def _fits(limits: Limits, shape: Shape) -> bool:
    """Whether a shape has these dimensions."""
    whole = limits.get(WHOLE)
    return whole.most == len(shape) if whole else all(dim < len(shape) for dim in limits)


def with_bounds(graph: Graph, bounds: InputBounds) -> Graph:
    """The graph with smaller largest shapes. Raises InputError for bounds that the program cannot have."""
    wanted = {_id(port): bounds.of(port) for port in graph.inputs if isinstance(port.value, Tensor)}
    if not any(wanted.values()):
        return graph
    live = plan(graph)
    found = find_sizes(live)
    ports = {_id(port): port for port in graph.inputs if isinstance(port.value, Tensor)}
    sizes = {value: found.inputs.get(value, port.max_shape) for value, port in ports.items()}
    chosen = _Chosen(live, ports, sizes)
    for value, limits in wanted.items():
        for dim, limit in limits.items():
            chosen.limit(value, dim, limit)
    if found.guessed:
        chosen.keep_what_need_not_shrink()
    shapes = _Largest(live, chosen)
    new = {
        tensor.id: replace(tensor, max_shape=shape)
        for tensor in graph.tensors()
        if tensor.constant is None and (shape := shapes.of(tensor)) != tensor.max_shape
    }
    made = with_tensors(graph, new)
    made.inputs = [chosen.port(port) if isinstance(port.value, Tensor) else port for port in made.inputs]
    return made


class _Chosen:
    """The sizes of the inputs within the bounds."""

    def __init__(
        self, live: LiveGraph, ports: Mapping[ValueId, Port], sizes: Mapping[ValueId, Sizes]
    ) -> None:
        self.live = live
        self.ports, self.sizes = ports, sizes
        self.free: dict[FreeSize, FreeSize] = {}  # the numbers that are limited, and what they become
        self._given: dict[FreeSize, str] = {}  # which bound has limited them
        self._named: set[tuple[ValueId, int]] = set()
        self._pins = False  # if one size is pinned, sizes that seem to be constants are held to, too

    def limit(self, value: ValueId, dim: int, limit: Limit) -> None:
        port, size = self.ports[value], self.sizes[value][dim]
        name = f"{port.name}[{dim}]"
        self._pins |= limit.pinned
        if isinstance(size, int):
            if size > limit.most or (limit.pinned and size != limit.most):
                why = refusal(self.live, port, dim) or InputError(f"{name} cannot vary")
                raise InputError(f"shapes: {name} must be {size}, not {limit}: {why}")
            return
        most = size.values[-1] if limit.most > size.values[-1] and not limit.pinned else limit.most
        if most not in size.values:
            raise InputError(f"shapes: {name} must be {size.rule()}, not {most}")
        number = (most - size.plus) // size.times
        values = range(number, number + 1) if limit.pinned else _up_to(size.of.values, number)
        if size.of in self._given and self.free[size.of].values[-1] != number:
            other = size.where(self.free[size.of].values[-1])
            raise InputError(f"shapes: {name} must be {other} where {self._given[size.of]}, not {most}")
        earlier = self.free.get(size.of)
        if earlier is None or len(values) < len(earlier.values):
            self.free[size.of] = replace(size.of, values=values)
        self._given.setdefault(size.of, f"{name} is {most}")
        self._named.add((value, dim))

    def keep_what_need_not_shrink(self) -> None:
        """Sizes that are guessed to belong together may not: shrink only those with a bound, if that runs."""
        alone = {
            value: tuple(
                size if (value, d) in self._named or not isinstance(size, Size) else size.values[-1]
                for d, size in enumerate(sizes)
            )
            for value, sizes in self.sizes.items()
        }
        try:
            self.live.preview({value: self._shape(sizes, {}) for value, sizes in alone.items()})
        except InputError:
            return
        self.sizes = {
            value: tuple(
                new if (value, d) in self._named or not isinstance(old, Size) else _own(old)
                for d, (new, old) in enumerate(zip(alone[value], sizes, strict=True))
            )
            for value, sizes in self.sizes.items()
        }

    def shapes(self, moved: Mapping[FreeSize, int]) -> dict[ValueId, Live]:
        """The shapes of inputs where some numbers have these values, and the others their largest."""
        return {value: self._shape(sizes, moved) for value, sizes in self.sizes.items()}

    def _shape(self, sizes: Sizes, moved: Mapping[FreeSize, int]) -> Shape:
        return tuple(
            size.where(moved.get(size.of, self.limited(size.of).values[-1]))
            if isinstance(size, Size)
            else size
            for size in sizes
        )

    def limited(self, free: FreeSize) -> FreeSize:
        return self.free.get(free, free)

    @property
    def numbers(self) -> list[FreeSize]:
        """What a call may choose."""
        return list(
            dict.fromkeys(n.of for sizes in self.sizes.values() for n in sizes if isinstance(n, Size))
        )

    def port(self, port: Port) -> Port:
        """An input with its bounds. It has its new tensor already."""
        sizes = self.sizes[_id(port)]
        now = tuple(map(self._size, sizes))
        of = {
            d: self.free[size.of]
            for d, size in enumerate(sizes)
            if isinstance(size, Size) and size.of in self.free
        }
        return replace(
            port,
            sizes=None if port.sizes is None else now,
            limited=frozenset(of),
            pinned=frozenset(d for d, size in enumerate(now) if self._pins and isinstance(size, int)),
        )

    def _size(self, size: int | Size) -> int | Size:
        if isinstance(size, int) or size.of not in self.free:
            return size
        new = replace(size, of=self.free[size.of])
        return new.values[0] if len(new.values) == 1 else new


def _up_to(values: range, most: int) -> range:
    return range(values.start, most + 1, values.step)


def _own(size: Size) -> Size:
    """The size as one that varies on its own."""
    return Size(FreeSize(size.values, name=size.of.name))


class _Largest:
    """The largest shape of every tensor within the bounds."""

    def __init__(self, live: LiveGraph, chosen: _Chosen) -> None:
        try:
            self._at_bound = live.preview(chosen.shapes({}))
        except InputError as error:
            raise InputError(f"shapes: the program cannot run at these bounds: {error}") from None
        self._lines: list[list[list[Live]]] = []  # shapes that should grow
        for number in chosen.numbers:
            limited = chosen.limited(number)
            tries = (_accepted(live, chosen.shapes({number: n})) for n in reversed(limited.smaller()))
            self._lines.append([shapes for shapes in tries if shapes is not None])
        roots = live.graph.input_ids | {element.symint.id for element in live.graph.elements}
        integers = [i for i in roots if isinstance(live.graph.values[i], SymInt)]
        # Shapes that should be equal, whatever the integers of a call are.
        tries = (
            _accepted(live, {**chosen.shapes({}), **dict.fromkeys(integers, n)})
            for n in INTEGERS_TO_TRY
            if integers
        )
        self._same = [shapes for shapes in tries if shapes is not None]

    def of(self, tensor: Tensor) -> Shape:
        dims = enumerate(tensor.max_shape)
        return tuple(self._size(tensor.id, dim, most) for dim, most in dims)

    def _size(self, value: ValueId, dim: int, most: int) -> int:
        size = _size(self._at_bound, value, dim)
        for line in self._lines:
            along = [*(_size(shapes, value, dim) for shapes in line), size]
            if along != sorted(along):
                return most
        return size if all(_size(shapes, value, dim) == size for shapes in self._same) else most


def _accepted(live: LiveGraph, changes: Mapping[ValueId, Live]) -> list[Live] | None:
    try:
        return live.preview(changes)
    except InputError:
        return None


def _size(shapes: list[Live], value: ValueId, dim: int) -> int:
    shape = shapes[value]
    assert isinstance(shape, tuple)
    return shape[dim]


def _id(port: Port) -> ValueId:
    assert isinstance(port.value, Tensor)
    return port.value.id
