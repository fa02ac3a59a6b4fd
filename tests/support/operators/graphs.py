"""Entries of the catalogue as live graphs, and the shader texts of all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pteron.compiler.ir.dispatch import GPU, HALF, PRECISIONS, SOFTWARE, SUBGROUP, Dispatch, Route
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import find
from pteron.compiler.ops import kernel as kernels
from pteron.compiler.plan.routes import ByName, Choice
from pteron.compiler.plan.sweep import plan
from pteron.compiler.sketch import found
from pteron.engine.executor import shader_text
from pteron.tools.verify.catalogue import CATALOGUE, OperatorEntry
from pteron.tools.verify.catalogue.arguments import LEAVES, T

# What devices of each kind offer: the portable floor, a driver on the CPU, and a GPU without and with extras.
# The last one may also round operands.
ROUNDING = (*PRECISIONS["float16"], *PRECISIONS["int8"])
DEVICES: tuple[tuple[str, ...], ...] = (
    (),
    (SOFTWARE, SUBGROUP, HALF),
    (GPU,),
    (GPU, SUBGROUP, HALF, *ROUNDING),
)


class LiveEntry:
    """The program of an entry at its largest size, which can be resized."""

    def __init__(
        self, entry: OperatorEntry, dtype: DType, features: Iterable[str] = (), choice: Choice | None = None
    ) -> None:
        self.entry, self.dtype = entry, dtype
        self.graph = entry.graph(dtype)
        self.live = plan(self.graph, frozenset(features), choice)

    @property
    def routes(self) -> list[Route]:
        return self.live.routes[0]

    def resize(self, size: int) -> tuple[list[Any], list[Any]]:
        """The output shapes at a live size: from the rule, and from the entry."""
        leaves = found(self.entry.arguments(size, self.dtype), LEAVES)
        lives = [leaf.shape if isinstance(leaf, T) else leaf.value for leaf in leaves]
        inputs = self.graph.input_ids
        self.live.sweep(
            {v.id: live for v, live in zip(self.graph.values, lives, strict=True) if v.id in inputs}
        )
        outputs = self.graph.nodes[0].writes
        return [self.live.current[v.id] for v in outputs], [lives[v.id] for v in outputs]


_TEXTS: dict[tuple[Any, ...], tuple[kernels.Kernel, str]] = {}


def texts_of(dispatches: Iterable[Dispatch]) -> list[str]:
    return [_built(dispatch)[1] for dispatch in dispatches]


def _built(d: Dispatch) -> tuple[kernels.Kernel, str]:
    """The kernel and its shader text. They are made once for equal kernels, defines, code and dtypes."""
    dtypes = tuple((name, getattr(bound, "dtype", None)) for name, bound in d.bindings.items())
    key = d.kernel, repr(d.defines), d.code, dtypes
    if key not in _TEXTS:
        kernel = kernels.load(d.kernel, d.defines)
        _TEXTS[key] = kernel, shader_text(kernel, d)
    return _TEXTS[key]


@dataclass(frozen=True)
class Built:
    """A shader text that some device compiles, and the operator that uses it."""

    text: str
    kernel: kernels.Kernel
    user: str
    portable: bool  # whether a device that offers nothing takes it


@functools.cache
def built_texts() -> list[Built]:
    """Every different shader text of all entries, on each kind of device."""
    texts: dict[str, Built] = {}
    for name, entries in CATALOGUE.items():
        for entry, dtype, features in product_of(entries):
            for route in LiveEntry(entry, dtype, features, ByName()).routes:
                for kernel, text in map(_built, route.dispatches):
                    texts.setdefault(text, Built(text, kernel, f"{name} of {dtype}", not features))
    return list(texts.values())


def product_of(entries: Iterable[OperatorEntry]) -> Iterator[tuple[OperatorEntry, DType, tuple[str, ...]]]:
    """Each entry with each of its dtypes on each kind of device."""
    return ((entry, dtype, features) for entry in entries for dtype in entry.dtypes for features in DEVICES)


def is_integer_arithmetic(name: str) -> bool:
    """Whether an operator works on SymInts alone, on the host."""
    spec = find(name)
    return spec is not None and spec.rule.__module__ == "pteron.compiler.ops.symint"
