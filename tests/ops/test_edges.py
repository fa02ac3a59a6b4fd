"""Every elementwise operator at the edges of its types, against torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pteron.api.method import Method
from pteron.compiler.ir.values import Port
from pteron.compiler.plan.sweep import plan
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.opening import Device
from pteron.engine.weight_store import WeightStore
from tests.support.edges import Case, cases, casts, operators
from tests.support.known_differences import DIFFERENCES, explained, titles_of_page
from tests.support.rules import STORED, argument, check_rule, host_type
from tests.support.sketch import Sketch, replaced


@pytest.mark.parametrize("name", operators())
def test_edges(device: Device, name: str) -> None:
    check(device, list(cases(name)))


def test_edges_of_conversions(device: Device) -> None:
    check(device, casts())


def check(device: Device, calls: Sequence[Case]) -> None:
    """All calls as one program. Each result must be that of torch, or a known difference."""
    assert calls, "torch accepts no arguments"
    wanted = [call() for call in calls]
    for call, got, want in zip(calls, results(device, calls, wanted), wanted, strict=True):
        good = explained(call, got, want)
        assert good.all(), difference(call, got, want, good)


def results(device: Device, calls: Sequence[Case], wanted: Sequence[Tensor]) -> list[Tensor]:
    sketch = Sketch(calls[0].name)
    for call, want in zip(calls, wanted, strict=True):
        args = replaced(call.args, (Tensor,), lambda leaf: argument(sketch, leaf))
        out = sketch.value(*want.shape, dtype=STORED[want.dtype])
        sketch.node(call.name, [*args, out])
        sketch.graph.outputs.append(Port(str(out), out, host_type(want), True))
    live = plan(sketch.graph, device.route_features, None)
    with closing(Method(live, device, WeightStore(device, convert_constant))) as method:
        arrays = method.execute([operand for call in calls for operand in call.operands])
    return [torch.as_tensor(array) for array in arrays]


def difference(call: Case, got: Tensor, want: Tensor, good: np.ndarray) -> str:
    """The first elements that differ."""
    operands = torch.broadcast_tensors(*call.operands)
    lines = [f"{call}: {np.count_nonzero(~good)} of {good.size} elements"]
    for place in map(tuple, np.argwhere(~good)[:12]):
        given = ", ".join(str(x[place].item()) for x in operands)
        lines.append(f"({given}): expected {want[place].item()}, got {got[place].item()}")
    return "\n".join(lines)


# Operators on rows: the arguments after x, and the function in torch.
ROWS: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "aten.sum.dim_IntList": (((1,), False, None), lambda x, *_: x.sum(1)),
    "aten.mean.dim": (((1,), False, None), lambda x, *_: x.mean(1)),
    "aten.amax.default": (((1,), False), lambda x, *_: x.amax(1)),
    "aten.amin.default": (((1,), False), lambda x, *_: x.amin(1)),
    "aten.max.dim": ((1, False), lambda x, *_: list(x.max(1))),
    "aten.argmin.default": ((1, False), lambda x, *_: x.argmin(1)),
    "aten.any.dim": ((1, False), lambda x, *_: x.any(1)),
    "aten.all.dim": ((1, False), lambda x, *_: x.all(1)),
    "aten.var.correction": (((1,), 1.0, False), lambda x, *_: x.var(1)),
    "aten.std.correction": (((1,), 1.0, False), lambda x, *_: x.std(1)),
    "aten._softmax.default": ((1, False), lambda x, *_: x.softmax(1)),
    "aten._log_softmax.default": ((1, False), lambda x, *_: x.log_softmax(1)),
    "aten.logsumexp.default": (((1,), False), lambda x, *_: x.logsumexp(1)),
    "aten.cumsum.default": ((1, None), lambda x, *_: x.cumsum(1)),
    "aten.sort.default": ((1, True), lambda x, *_: list(x.sort(dim=1, descending=True, stable=True))),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("width", [6, 300])
def test_rows_with_nan_and_infinities(routed: Device, name: str, width: int) -> None:
    """Each row has one special value, or only this value; one has infinities of both signs."""
    more, function = ROWS[name]
    x = torch.linspace(-1, 1, width).repeat(12, 1)
    for row, value in enumerate((nan, inf, -inf, nan, inf, -inf)):
        x[row, (width - 1) * (row % 2)] = value
    x[6, 1:3] = torch.tensor([inf, -inf])
    x[7:10] = torch.tensor([nan, inf, -inf])[:, None]
    x[10] = torch.arange(width) % 3 - 1
    check_rule(routed, name, lambda n: [x[-n:], *more], function, (12, 5, 12), rtol=1e-5, atol=1e-5, nan=True)


def test_the_page_lists_the_known_differences() -> None:
    assert titles_of_page() == list(DIFFERENCES)
