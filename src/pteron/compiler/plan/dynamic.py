"""Which dimensions of the inputs a call may make smaller, and which dimensions of the outputs change too.

`pteron.export` stores it in the file. Other files store only the largest sizes, not which of them may vary.
Then ask the sweep: a dimension is dynamic if the sweep accepts a smaller size, for this dimension alone or
for all inputs' dimensions of the same size. This is a guess: the exporter may have fixed a size for reasons
that no operator knows. It is integer arithmetic in the operators' rules. Nothing runs on a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pteron.compiler.ir.dispatch import describe
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize, Size, Sizes, letters, varying
from pteron.compiler.ir.values import Graph, Port, Shape, Tensor, ValueId
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError

Dim = tuple[ValueId, int]

# Each is tried by a sweep. No exported program has nearly as many; those beyond are taken for static.
MOST_CANDIDATES = 1000


@dataclass(frozen=True, slots=True)
class DynamicSizes:
    """The sizes of a method's tensors.

    inputs: the sizes of each input tensor. dims: the dynamic dimensions of each input and output tensor.
    guessed: the file does not say which sizes may vary.
    """

    inputs: dict[ValueId, Sizes]
    dims: dict[ValueId, tuple[int, ...]]
    guessed: bool

    @property
    def together(self) -> dict[FreeSize, list[tuple[ValueId, int, Size]]]:
        """The dimensions of inputs that move together, with their sizes, by the number that moves them."""
        found: dict[FreeSize, list[tuple[ValueId, int, Size]]] = {}
        for value, sizes in self.inputs.items():
            for dim, size in enumerate(sizes):
                if isinstance(size, Size):
                    found.setdefault(size.of, []).append((value, dim, size))
        return found


def find_sizes(live: LiveGraph) -> DynamicSizes:
    """The sizes that calls may have: those in the file, or a guess."""
    trials = _Trials(live)
    ports = _resizable(live.graph)
    guessed = any(port.sizes is None for port in ports)
    inputs = _guess(trials, ports) if guessed else _stored(trials, ports)
    # An output that rounds its size, such as a strided convolution's, may not change with one step: halve
    # too.
    trials.accepts(
        {value: tuple(_half(size) for size in sizes) for value, sizes in inputs.items() if varying(sizes)}
    )
    dims = {value: varying(sizes) for value, sizes in inputs.items()}
    for counted in live.graph.counts:
        trials.changed[counted].add(0)
    for value, changed in trials.changed.items():
        dims[value] = tuple(sorted({*dims.get(value, ()), *changed}))
    return DynamicSizes(inputs, dims, guessed)


def _half(size: int | Size) -> int:
    return size if isinstance(size, int) else size.at(-(-size.values[-1] // 2))


class _Trials:
    """Asks the sweep about shapes, and notes which dimensions of outputs change."""

    def __init__(self, live: LiveGraph) -> None:
        self.live = live
        self.changed: dict[ValueId, set[int]] = defaultdict(set)
        self._outputs = [p.value for p in live.graph.outputs if isinstance(p.value, Tensor)]

    def accepts(self, shapes: Mapping[ValueId, Live]) -> bool:
        try:
            after = self.live.preview(shapes)
        except InputError:
            return False
        for tensor in self._outputs:
            shape = after[tensor.id]
            assert isinstance(shape, tuple)
            self.changed[tensor.id].update(d for d, n in enumerate(shape) if n != tensor.max_shape[d])
        return True


def _resizable(graph: Graph) -> list[Port]:
    return [p for p in graph.inputs if p.resizable and isinstance(p.value, Tensor)]


def _id(port: Port) -> ValueId:
    assert isinstance(port.value, Tensor)
    return port.value.id


def _stored(trials: _Trials, ports: list[Port]) -> dict[ValueId, Sizes]:
    """The sizes in the file. One that the program refuses to change is taken for static."""
    sizes = {_id(port): port.sizes or () for port in ports}
    free = {size.of for own in sizes.values() for size in own if isinstance(size, Size)}
    moving = {f for f in free if any(trials.accepts(changes) for changes in _moved(ports, f))}
    return {
        value: tuple(n.values[-1] if isinstance(n, Size) and n.of not in moving else n for n in own)
        for value, own in sizes.items()
    }


def _moved(ports: Iterable[Port], free: FreeSize) -> Iterator[dict[ValueId, Live]]:
    """The shapes of inputs at some smaller values of a free size. All others have their largest sizes."""
    for value in free.smaller():
        yield {
            _id(port): tuple(
                n.where(value) if isinstance(n, Size) and n.of is free else most
                for n, most in zip(port.sizes or (), port.max_shape, strict=True)
            )
            for port in ports
            if any(isinstance(n, Size) and n.of is free for n in port.sizes or ())
        }


def _guess(trials: _Trials, ports: list[Port]) -> dict[ValueId, Sizes]:
    """Dimensions that may be smaller by one. If there are none, those that may be smaller by more.

    The file says that a shape may vary, so there should be one. But heads, which may be fewer only by half,
    are rarely meant.
    """
    inputs = {_id(port): port.max_shape for port in ports}
    pinned = {(_id(port), dim) for port in ports for dim in port.pinned}
    for steps in (_one_less, _fewer):
        sizes = _accepted(trials, inputs, pinned, steps)
        if any(map(varying, sizes.values())):
            break
    return sizes


def _one_less(most: int) -> set[int]:
    return {most - 1}


def _fewer(most: int) -> set[int]:
    """Sizes for programs that take only some. A size of 1 says little: many operators repeat the only row."""
    return {n for n in (most - 2, -(-most // 2), -(-most // 4)) if n > 1}


def _accepted(
    trials: _Trials,
    inputs: Mapping[ValueId, Shape],
    pinned: Collection[Dim],
    steps: Callable[[int], set[int]],
) -> dict[ValueId, Sizes]:
    """Dimensions that may be smaller alone, and dimensions of one size that may be smaller together."""
    candidates = [
        (i, d)
        for i, shape in inputs.items()
        for d, size in enumerate(shape)
        if size > 1 and (i, d) not in pinned
    ]
    names = letters({port.name for port in trials.live.graph.inputs})
    free: dict[Dim, FreeSize] = {}
    same: dict[int, list[Dim]] = defaultdict(list)
    for value, dim in candidates[:MOST_CANDIDATES]:
        most = inputs[value][dim]
        same[most].append((value, dim))
        if any(map(trials.accepts, _smaller(inputs, [(value, dim)], steps(most)))):
            free[value, dim] = FreeSize(range(most + 1), name=next(names))
    for most, dims in same.items():
        tied = [dim for dim in dims if dim not in free]
        if tied and len(dims) > 1 and any(map(trials.accepts, _smaller(inputs, dims, steps(most)))):
            free.update(dict.fromkeys(tied, FreeSize(range(most + 1), name=next(names))))
    return {
        value: tuple(Size(free[value, d]) if (value, d) in free else n for d, n in enumerate(shape))
        for value, shape in inputs.items()
    }


def _smaller(
    inputs: Mapping[ValueId, Shape], dims: Iterable[Dim], sizes: set[int]
) -> Iterator[dict[ValueId, Live]]:
    """The shapes of inputs with some dimensions at smaller sizes."""
    for size in sorted(sizes, reverse=True):
        shapes: dict[ValueId, list[int]] = {}
        for value, dim in dims:
            shapes.setdefault(value, list(inputs[value]))[dim] = size
        yield {value: tuple(shape) for value, shape in shapes.items()}


def refusal(live: LiveGraph, port: Port, dim: int) -> InputError | None:
    """Why no smaller size is accepted, for this dimension alone or for all dimensions of its size.

    None: the dimension is dynamic.
    """
    if dim in port.pinned:
        return InputError(f"{port.name}[{dim}] was pinned to {port.max_shape[dim]} at load, by shapes=")
    ports = _resizable(live.graph)
    first: InputError | None = None
    for changes in _tries(ports, port, dim):
        try:
            live.preview(changes)
            if port.sizes is None or isinstance(port.sizes[dim], Size):
                return None
            break  # no node refuses, but the export did not ask for it
        except InputError as error:
            first = first or error
    if port.sizes is not None and isinstance(port.sizes[dim], int):
        most = port.max_shape[dim]
        why = "" if first is None else f". The first node that refuses another size: {first}"
        fixed = InputError(f"{port.name}[{dim}] was exported as the constant {most}{why}")
        fixed.__cause__ = first
        return fixed
    return first


def _tries(ports: list[Port], port: Port, dim: int) -> Iterator[dict[ValueId, Live]]:
    size = port.sizes[dim] if port.sizes is not None else None
    if isinstance(size, Size):
        yield from _moved(ports, size.of)
        return
    most = port.max_shape[dim]
    inputs = {_id(p): p.max_shape for p in ports}
    alone = [(_id(port), dim)]
    together = [(i, d) for i, shape in inputs.items() for d, n in enumerate(shape) if n == most]
    for dims in (alone, together) if len(together) > 1 else (alone,):
        yield from _smaller(inputs, dims, _one_less(most) | _fewer(most))


def check_shape(port: Port, shape: Shape) -> None:
    """Refuse a live shape that an input or output cannot have. This check does not look at the graph."""
    largest = port.max_shape
    if len(shape) != len(largest):
        raise InputError(
            f"{port.name}: expected {len(largest)} dimensions (at most {describe(largest)}), "
            f"got shape {describe(shape)}"
        )
    for d, (size, most) in enumerate(zip(shape, largest, strict=True)):
        if size > most:
            made = "loaded" if d in port.limited else "exported"
            where = " in shapes=" if d in port.limited else ""
            stored = port.sizes[d] if port.sizes is not None else most
            follows = isinstance(stored, Size) and (stored.times > 1 or stored.plus)
            why = f" ({stored.meaning(f'{port.name}[{d}]')})" if follows and isinstance(stored, Size) else ""
            raise InputError(
                f"{port.name}: dimension {d} is {size}, but the program was {made} for at most {most}{why}: "
                f"split the input, or {made[:-2]} with a larger bound{where}"
            )
        if size != most and not port.resizable:
            raise InputError(
                f"{port.name}: expected shape {describe(largest)}, got {describe(shape)}: "
                "the program was exported for this shape alone; "
                "dynamic_shapes can vary sizes that no weight has"
            )
