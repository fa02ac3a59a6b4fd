"""Records as torch modules: exported by stock ExecuTorch with each partitioner, and by `pteron.export`.

Such a program shows what the exporter makes of it: views without a kernel, memory that is used again,
delegates, branches and loops. Its values in between are not visible, so only its results are compared.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

import pteron
from tests.differential.draw import program
from tests.differential.fills import tensor_of
from tests.differential.kernels import ANY_CONTENTS, SYM_SIZE, kernel
from tests.differential.record import Record, resolved
from tests.support.export import lower

FILLS = (
    "normal",
    "whole",
    "positive",
)  # errors of results that are hard to compute would grow from step to step
ENDINGS = (None, None, None, "cond", "cond of size", "map")


@dataclass
class Exported:
    """A program in several files, and the results that torch and ExecuTorch have in each call."""

    kernels: str
    files: dict[str, bytes]
    inputs: list[list[torch.Tensor]]
    torch: list[list[Any]]
    executorch: list[list[Any]] = field(default_factory=list)  # empty: ExecuTorch does not run it


class Recorded(torch.nn.Module):
    """A record as a module."""

    def __init__(self, record: Record, ending: str | None) -> None:
        super().__init__()
        self.record, self.ending = record, ending
        for name, source in record.sources.items():
            if source.kind != "input":
                self.register_buffer(name, tensor_of(source, 0))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values: dict[str, Any] = {
            **dict(self.named_buffers()),
            **dict(zip(self.record.inputs, inputs, strict=True)),
        }
        for step in self.record.steps:
            called = kernel(step.kernel)
            args = resolved(step.args, values.__getitem__)
            if called.in_place:
                made = [getattr(args["self"], called.operator)(*list(args.values())[1:])]
            elif step.kernel == SYM_SIZE:
                made = [args["self"].shape[args["dim"]]]
            else:
                made = called(args, step.dtype)
            values |= dict(zip(step.outputs, made, strict=True))
        results = [values[name] for name in self.record.results]
        tensors = [value for value in results if isinstance(value, torch.Tensor)]
        return tuple(_ended(value, self.ending) for value in tensors)


def _ended(x: torch.Tensor, ending: str | None) -> torch.Tensor:
    """A result after a branch or a loop."""
    if not x.is_floating_point() or not x.dim() or ending is None:
        return x
    if ending == "map":
        from torch._higher_order_ops.map import map as each

        return each(lambda row: torch.sigmoid(row) + row, x)
    condition: Any = x.sum() > 0 if ending == "cond" else x.shape[0] > 3
    return torch.cond(condition, _negated, _halved, (x,))


def _negated(x: torch.Tensor) -> torch.Tensor:
    return -x


def _halved(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 + 1


def exported(number: int) -> Exported | str:
    """The program with this number, or why there is none."""
    record, _ = program(number, FILLS)
    if not record.steps or any(step.kernel in ANY_CONTENTS for step in record.steps):
        return "contents without meaning"
    rng = random.Random(number)
    module = Recorded(record, rng.choice(ENDINGS)).eval()
    for source in record.sources.values():  # delegates of Vulkan store constants in 32 bits
        if source.dtype == "int64" and source.kind == "input" and rng.random() < 0.5:
            source.fill = "edges" if source.fill in FILLS else source.fill
    inputs = [[tensor_of(record.sources[n], point) for n in record.inputs] for point in record.calls]
    example = tuple(tensor_of(record.sources[n], 0) for n in record.inputs)
    try:
        # The exporter's fake tensors run kernels, too. None may change the module.
        graph = torch.export.export(copy.deepcopy(module), example, dynamic_shapes={"inputs": _dims(record)})
        files = {
            "portable": lower(graph, False, any_operator=True),
            "Vulkan": lower(graph, any_operator=True),
            "XNNPACK": lower(graph, XnnpackPartitioner(), any_operator=True),
        }
    except Exception as error:
        return f"not exported: {type(error).__name__}"
    with suppress(Exception):  # it also refuses what Pteron cannot run
        files["pteron.export"] = pteron.export(graph).buffer
    with torch.no_grad():
        # A result may be a buffer, which the next call writes.
        eager = [copy.deepcopy(list(module(*copy.deepcopy(given)))) for given in inputs]
    kernels = " ".join([*(step.kernel for step in record.steps), *([module.ending] if module.ending else [])])
    return Exported(kernels, files, inputs, eager)


def _dims(record: Record) -> tuple[dict[int, Any], ...]:
    """A dimension whose size changes is dynamic. Equal sizes at all points are one dimension."""
    known: dict[tuple[int, ...], Any] = {}

    def dim(sizes: tuple[int, ...]) -> Any:
        if sizes not in known:
            known[sizes] = torch.export.Dim(f"d{len(known)}", min=min(sizes), max=max(sizes))
        return known[sizes]

    found = []
    for name in record.inputs:
        columns = list(zip(*record.sources[name].shapes, strict=True))
        found.append({d: dim(sizes) for d, sizes in enumerate(columns) if len(set(sizes)) > 1})
    return tuple(found)


def run_by_executorch(program: Exported, load: Callable[[bytes], Any]) -> list[list[Any]]:
    """The results of ExecuTorch's own runtime for the file without a delegate."""
    module = load(program.files["portable"])
    results = [module.run_method("forward", tuple(given)) for given in copy.deepcopy(program.inputs)]
    return [[value.clone() for value in values] for values in results]
