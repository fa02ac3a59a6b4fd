"""The rule of one operator as a graph, without an exported file.

Exporters change from release to release, but the rule of an operator does not. The
graph is built at the largest arguments, and called at smaller ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch

from pteron.api.method import Method
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Port, Value
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.opening import Device
from pteron.engine.weight_store import WeightStore
from tests.support.calls import Call, check_calls
from tests.support.memory import poison
from tests.support.sketch import Sketch, found, replaced

STORED = {
    torch.float64: DType.float32,
    torch.float32: DType.float32,
    torch.float16: DType.float16,
    torch.bfloat16: DType.bfloat16,
    torch.complex64: DType.complex64,
    torch.int64: DType.int32,
    torch.int32: DType.int32,
    torch.int16: DType.int32,
    torch.int8: DType.int8,
    torch.uint8: DType.uint8,
    torch.bool: DType.bool,
}


@dataclass(frozen=True)
class Sym:
    """An integer argument that a call may change."""

    value: int


@dataclass(frozen=True)
class Fixed:
    """A tensor of the file, such as a weight."""

    tensor: torch.Tensor
    layout: str = ""


class OneNode:
    """A graph with one operator, for the given arguments.

    It returns `outs`, and then the arguments that the operator writes in place.
    """

    def __init__(
        self,
        device: Device,
        name: str,
        args: Sequence[Any],
        outs: Sequence[torch.Tensor],
        listed: bool,
        route: str | None = None,
    ) -> None:
        sketch = Sketch(name)
        built = replaced(args, (torch.Tensor, Sym, Fixed), lambda leaf: argument(sketch, leaf))
        targets = tuple(sketch.value(*x.shape, dtype=STORED[x.dtype]) for x in outs)
        node = sketch.node(name, [*built, targets if listed else targets[0]])
        graph = sketch.graph
        graph.outputs = [
            Port(f"out{number}", target, host_type(x), True)
            for number, (target, x) in enumerate(zip(targets, outs, strict=True))
        ]
        graph.outputs += [port for port in graph.inputs if port.value in node.mutates]
        choice = None if route is None else ByName(route)
        live = plan(graph, device.route_features, choice)
        self.method = Method(live, device, WeightStore(device, convert_constant))

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        poison(self.method)
        return self.method.execute(inputs_of(args))

    def close(self) -> None:
        self.method.close()


def argument(sketch: Sketch, leaf: torch.Tensor | Sym | Fixed) -> Value:
    if isinstance(leaf, Sym):
        return sketch.integer()
    x = leaf.tensor if isinstance(leaf, Fixed) else leaf
    stored, host = STORED[x.dtype], host_type(x)
    if isinstance(leaf, Fixed):
        bits = x.contiguous().view(torch.uint16) if x.dtype is torch.bfloat16 else x.contiguous()
        data = bits.numpy().tobytes()
        return sketch.constant(*x.shape, dtype=stored, data=data, host=host, layout=leaf.layout)
    return sketch.input(*x.shape, dtype=stored, host=host)


def host_type(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def inputs_of(args: Sequence[Any]) -> list[Any]:
    """The inputs of a call: the tensors and integers in the arguments."""
    return [
        leaf.value if isinstance(leaf, Sym) else leaf
        for leaf in found(args, (torch.Tensor, Sym, Fixed))
        if not isinstance(leaf, Fixed)
    ]


def plain(args: Sequence[Any]) -> Any:
    """The arguments for torch."""
    return replaced(args, (Sym, Fixed), lambda leaf: leaf.value if isinstance(leaf, Sym) else leaf.tensor)


def as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check_rule(
    device: Device,
    name: str,
    make: Callable[[int], Sequence[Any]],
    torch_function: Callable[..., Any],
    lives: Sequence[int] = (7, 3, 1, 7, 4),
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    nan: bool = False,
    route: str | None = None,
) -> None:
    """Build at make(max(lives)), then compare with torch at each live size, in the order given.

    `make` returns the arguments of the rule without the output. `torch_function` takes the same arguments.
    `route` is used wherever it fits.
    """
    torch.manual_seed(0)
    largest = make(max(lives))
    expected = torch_function(*plain(largest))

    def calls() -> Iterator[Call]:
        for live in lives:
            args = make(live)
            wanted = as_list(torch_function(*plain(copy.deepcopy(args))))  # which may write its arguments
            yield Call(inputs_of(args), wanted, f"of {name} at {live}")

    listed = isinstance(expected, (tuple, list))
    with closing(OneNode(device, name, largest, as_list(expected), listed, route)) as node:
        check_calls(node.method, calls(), rtol, atol, nan=nan)
