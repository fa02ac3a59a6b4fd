"""Every operator of torch that Pteron has is exported by `pteron.export`, and gives torch's results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.sketch import found, replaced
from pteron.engine.devices.opening import Device
from pteron.tools.verify.catalogue import CATALOGUE
from pteron.tools.verify.catalogue.arguments import Drawing, Position, T
from tests.check_op import TORCH_DTYPES, torch_function
from tests.support.compare import disagreements

TOGETHER = 24  # operators in one program: an export takes seconds
EXCEPTIONS = {
    "aten._weight_int8pack_mm.default": "ExecuTorch has no form of it that writes into an output",
    "aten.empty.memory_format": "its contents mean nothing",
}


@dataclass(frozen=True)
class TorchCall:
    """An operator of torch, with arguments from the catalogue."""

    name: str
    args: tuple[Any, ...]
    tensors: tuple[torch.Tensor, ...]

    def __call__(self, *given: torch.Tensor) -> list[torch.Tensor]:
        left = iter(given)
        filled = replaced(
            self.args, (T, Position), lambda leaf: next(left) if isinstance(leaf, T) else leaf.value
        )
        function = torch_function(self.name)
        named = {a.name: x for a, x in zip(function._schema.arguments, filled, strict=False) if a.kwarg_only}
        made = function(*filled[: len(filled) - len(named)], **named)
        return [x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]


def calls() -> Iterator[TorchCall]:
    """The first arguments of each operator that torch accepts."""
    for name, entries in sorted(CATALOGUE.items()):
        if torch_function(name) is None or entries[0].spec.mutates or name in EXCEPTIONS:
            continue
        for entry in entries:
            call = _call(name, entry)
            if call is not None:
                yield call
                break


def _call(name: str, entry: Any) -> TorchCall | None:
    dtype = next((each for each in TORCH_DTYPES if each in entry.dtypes), DType.float32)
    args = tuple(entry.make(entry.sizes[0]))[: len(entry.spec.parameters) - 1]
    drawn = found(Drawing(dtype).all(args), (np.ndarray,))
    call = TorchCall(name, args, tuple(torch.from_numpy(np.array(x)) for x in drawn))
    try:
        call(*call.tensors)
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return None
    return call


CALLS = list(calls())
GROUPS = [CALLS[at : at + TOGETHER] for at in range(0, len(CALLS), TOGETHER)]


class Together(torch.nn.Module):
    def __init__(self, calls: list[TorchCall]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(given)
        return tuple(y for call in self.calls for y in call(*(next(left) for _ in call.tensors)))


def problems(group: list[TorchCall], device: Device) -> list[str]:
    """What is wrong with operators in one program. If it cannot be exported, each is tried alone."""
    module, tensors = Together(group).eval(), tuple(x for call in group for x in call.tensors)
    try:
        made = pteron.export(module, tensors)
        assert made.report.ok, str(made.report)
        with pteron.load(made.buffer, device=device) as program:
            outputs = program.method().execute(list(tensors))
    except Exception as error:
        if len(group) == 1:
            return [f"{group[0].name}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"]
        half = len(group) // 2
        return problems(group[:half], device) + problems(group[half:], device)
    names = [call.name for call in group for _ in call(*call.tensors)]
    wanted = module(*tensors)
    return [
        f"{name}: {problem}"
        for name, got, want in zip(names, outputs, wanted, strict=True)
        for problem in disagreements([got], [want], 1e-3, 1e-5, nan=True)
    ]


@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_operators_are_exported(device: Device, number: int) -> None:
    assert not problems(GROUPS[number], device)


def test_most_operators_are_tried() -> None:
    known = [name for name in CATALOGUE if torch_function(name) is not None]
    assert len(CALLS) > 0.9 * len(known)
