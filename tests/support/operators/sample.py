"""Sample arguments of operators, and the results of the rules for them, without a GPU and without torch.

A sample is a function of `n`, the live size: the rule's arguments in their order, the output last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pteron.gpu.executor import shader_text
from pteron.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, Dispatch, Route
from pteron.ir.dtypes import DType
from pteron.ir.op import find, registered
from pteron.ir.values import Port, Tensor, Value
from pteron.ops import kernel as kernels
from pteron.plan.memory import Layout
from pteron.plan.routes import Choice, LiveShapes
from pteron.plan.sweep import LiveGraph
from tests.support.sketch import Sketch, found, replaced

LARGEST, SMALLER = 8, 5
FLOATS = tuple(dtype for dtype in DType if dtype.is_float)

# What devices of each kind offer: the portable floor, a driver on the CPU, and a GPU without and with extras.
DEVICES: tuple[tuple[str, ...], ...] = ((), (SOFTWARE, SUBGROUP, HALF), (GPU,), (GPU, SUBGROUP, HALF))


@dataclass(frozen=True)
class T:
    """A tensor argument. dtype None: the dtype under test. Fixed: a constant of the file."""

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
    """`names` are separated by spaces. The prefix `aten.` and the suffix `.default` may be omitted."""
    for name in names.split():
        SAMPLES.setdefault(_full_name(name), []).append(Sample(make, tuple(dtypes)))


def _full_name(name: str) -> str:
    for candidate in (f"aten.{name}", f"aten.{name}.default", name, f"{name}.default"):
        if find(candidate):
            return candidate
    raise KeyError(f"there is no operator {name}")


# -- a sample as a graph of one node -----------------------------------------------------------------


class OneNodeGraph:
    """A graph with one node: a sample at its largest size, which can be resized."""

    def __init__(
        self,
        name: str,
        sample: Sample,
        dtype: DType,
        features: Iterable[str] = (),
        choice: Choice | None = None,
    ) -> None:
        self.sample, self.dtype = sample, dtype
        sketch = Sketch(name)
        *args, out = sample.make(LARGEST)
        built = [self._values(arg, sketch.input, sketch) for arg in args]
        node = sketch.node(name, [*built, self._values(out, sketch.value, sketch)])
        self.graph = sketch.graph
        self.graph.outputs = [Port(str(v), v, "", True) for v in node.writes]
        self.live = LiveGraph(self.graph, Layout.of(self.graph), frozenset(features), choice)

    def _values(self, arg: Any, tensor: Callable[..., Tensor], sketch: Sketch) -> Any:
        def value(leaf: T | Position) -> Value:
            if isinstance(leaf, Position):
                return sketch.integer()
            make = sketch.constant if leaf.fixed else tensor
            return make(*leaf.shape, dtype=leaf.dtype or self.dtype)

        return replaced(arg, (T, Position), value)

    @property
    def routes(self) -> list[Route]:
        return self.live.routes[0]

    def resize(self, n: int) -> tuple[list[Any], list[Any]]:
        """The output shapes at a live size: from the rule, and from the sample."""
        args = self.sample.make(n)
        shapes = [arg.shape if isinstance(arg, T) else 0 for arg in found(args, (T, Position))]
        inputs = self.graph.input_ids
        self.live.resize({v.id: s for v, s in zip(self.graph.values, shapes, strict=True) if v.id in inputs})
        outputs = self.graph.nodes[0].writes
        return [self.live.live[v.id] for v in outputs], [shapes[v.id] for v in outputs]


_TEXTS: dict[tuple[Any, ...], str] = {}


def texts_of(dispatches: Iterable[Dispatch]) -> list[str]:
    return [_text(dispatch) for dispatch in dispatches]


def _text(d: Dispatch) -> str:
    """The shader text. It is made once for equal kernels, defines, code and dtypes."""
    dtypes = tuple((name, getattr(bound, "dtype", None)) for name, bound in d.bindings.items())
    key = d.kernel, repr(d.defines), d.code, dtypes
    if key not in _TEXTS:
        _TEXTS[key] = shader_text(kernels.load(d.kernel, d.defines), d)
    return _TEXTS[key]


class EveryRoute:
    """A choice that compiles every route, and uses the wanted route if it fits."""

    wanted = ""

    def keeps(self, key: str, route: str) -> bool:
        return True

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        return self.wanted if self.wanted in fitting else fitting[0]


@dataclass(frozen=True)
class Built:
    """A shader text that some device compiles, and the operator that uses it."""

    text: str
    kernel: str
    user: str
    portable: bool  # whether a device that offers nothing takes it


@functools.cache
def built_texts() -> list[Built]:
    """Every different shader text of all samples, on each kind of device."""
    texts: dict[str, Built] = {}
    for name, given in SAMPLES.items():
        for sample, dtype, features in product_of(given):
            for route in OneNodeGraph(name, sample, dtype, features, EveryRoute()).routes:
                for dispatch, text in zip(route.dispatches, texts_of(route.dispatches), strict=True):
                    texts.setdefault(text, Built(text, dispatch.kernel, f"{name} of {dtype}", not features))
    return list(texts.values())


def product_of(samples: Iterable[Sample]) -> Iterator[tuple[Sample, DType, tuple[str, ...]]]:
    """Each sample with each of its dtypes on each kind of device."""
    return ((s, dtype, features) for s in samples for dtype in s.dtypes for features in DEVICES)


def is_integer_arithmetic(name: str) -> bool:
    """Whether an operator works on SymInts alone, on the host."""
    spec = find(name)
    return spec is not None and spec.rule.__module__ == "pteron.ops.symint"


def without_sample() -> set[str]:
    return {name for name in registered() if name not in SAMPLES and not is_integer_arithmetic(name)}
