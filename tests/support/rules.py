"""Run one operator's rule as a graph of its own, without an exported file around it.

What the exporter does with an operator changes from release to release; the rule should not. The
graph is built at the largest arguments, and called at smaller ones. A `Fixed` tensor is a constant of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import pteron.fusion
import pteron.ops  # noqa: F401  both register operators
from pteron.arrays import convert_constant
from pteron.devices import Device
from pteron.gpu.placement import Placement
from pteron.ir.dtypes import DType
from pteron.ir.op import find
from pteron.ir.values import Constant, Graph, Node, Port, SymInt, Tensor, ValueId, values_in
from pteron.method import Method
from pteron.plan.sweep import plan
from pteron.pte.bytesource import ByteSource

STORED = {
    torch.float64: DType.float32,
    torch.float32: DType.float32,
    torch.float16: DType.float16,
    torch.bfloat16: DType.bfloat16,
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


def as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def flatten(args: Any) -> list[Any]:
    """The tensors and SymInts inside the arguments, in order."""
    if isinstance(args, (torch.Tensor, Sym)):
        return [args]
    return [leaf for item in args for leaf in flatten(item)] if isinstance(args, (tuple, list)) else []


class OneNode:
    """An operator alone, built for the arguments given."""

    def __init__(
        self, device: Device, name: str, args: Sequence[Any], outs: Sequence[torch.Tensor], listed: bool
    ) -> None:
        spec = find(name)
        assert spec is not None, f"{name} is not registered"
        self.device = device
        graph = Graph(name)

        def tensor(x: torch.Tensor, label: str, constant: Constant | None = None) -> Tensor:
            value = Tensor(ValueId(len(graph.values)), STORED[x.dtype], tuple(x.shape), label, constant)
            graph.values.append(value)
            return value

        def value(arg: Any) -> Any:
            if isinstance(arg, Fixed):
                bits = arg.tensor.contiguous()
                array = (bits.view(torch.uint16) if bits.dtype is torch.bfloat16 else bits).numpy()
                host = str(bits.dtype).removeprefix("torch.")
                data = Constant(ByteSource(memoryview(array.data).cast("B")).region(), host)
                return tensor(arg.tensor, f"weight{len(graph.values)}", data)
            if isinstance(arg, torch.Tensor):
                made = tensor(arg, f"in{len(graph.inputs)}")
                graph.inputs.append(Port(made.name, made, str(arg.dtype).removeprefix("torch."), True))
                return made
            if isinstance(arg, Sym):
                symint = SymInt(ValueId(len(graph.values)), f"in{len(graph.inputs)}")
                graph.values.append(symint)
                graph.inputs.append(Port(symint.name, symint, "int", True))
                return symint
            return tuple(map(value, arg)) if isinstance(arg, (tuple, list)) else arg

        built = [value(arg) for arg in args]
        targets = [tensor(x, f"out{i}") for i, x in enumerate(outs)]
        bound = spec.bind([*built, tuple(targets) if listed else targets[0]])
        reads = tuple(v for arg in bound[:-1] for v in values_in(arg))
        mutated = spec.mutated(bound)
        graph.nodes.append(Node(0, name, spec, bound, reads, spec.outputs(bound), mutated, "by hand"))
        results = [(t, str(x.dtype).removeprefix("torch.")) for t, x in zip(targets, outs, strict=True)]
        graph.outputs = [Port(t.name, t, host, True) for t, host in results]
        # What a node writes in place comes after its outputs.
        graph.outputs += [port for port in graph.inputs if port.value in mutated]
        self.method = Method(plan(graph, device.route_features), device, Placement(device, convert_constant))

    def __call__(self, args: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        poison(self.method)
        leaves = [leaf.value if isinstance(leaf, Sym) else leaf for leaf in flatten(args)]
        return self.method.execute(leaves)

    def close(self) -> None:
        self.method.close()


def poison(method: Method) -> None:
    """Fill the activations with NaN (all bits set), so that a value nobody wrote is seen."""
    executor = method._executor
    for buffer in executor.activations:
        executor.device.write(buffer, 0, b"\xff" * buffer.size)


def check_rule(
    device: Device,
    name: str,
    make: Callable[[int], Sequence[Any]],
    torch_function: Callable[..., Any],
    lives: Sequence[int] = (7, 3, 1, 7, 4),
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Build at make(max(lives)), then compare with torch at each live size, in the order given.

    `make` gives the rule's arguments without the output; `torch_function` takes the same ones.
    """
    torch.manual_seed(0)
    largest = make(max(lives))
    expected = torch_function(*plain(largest))
    node = OneNode(device, name, largest, as_list(expected), isinstance(expected, (tuple, list)))
    try:
        for live in lives:
            args = make(live)
            for got, want in zip(node(args), as_list(torch_function(*plain(args))), strict=True):
                assert got.shape == tuple(want.shape), (
                    f"{name} at {live}: {got.shape}, not {tuple(want.shape)}"
                )
                compare(got, want, f"{name} at {live}", rtol, atol)
    finally:
        node.close()


def plain(args: Any) -> Any:
    """Arguments as torch takes them."""
    if isinstance(args, Sym):
        return args.value
    if isinstance(args, Fixed):
        return args.tensor
    return type(args)(plain(a) for a in args) if isinstance(args, (tuple, list)) else args


def compare(got: np.ndarray[Any, Any], want: torch.Tensor, what: str, rtol: float, atol: float) -> None:
    if want.dtype is torch.float16:  # one rounding of the result is the storage's, not the kernel's
        rtol, atol = max(rtol, 2e-3), max(atol, 1e-3)
    if want.dtype is torch.bfloat16:
        rtol, atol, want = max(rtol, 1.6e-2), max(atol, 8e-3), want.float()
    np.testing.assert_allclose(got, want.numpy(), rtol=rtol, atol=atol, err_msg=what)
