"""Export a model of the zoo to a `.pte` file, in one of several modes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import pteron
from tests.support.export import export
from tests.zoo.model import Model


@dataclass(frozen=True)
class Mode:
    """The way of lowering, and whether the program has a dynamic dimension."""

    lowering: str  # vulkan: by ExecuTorch's partitioner, portable: without one, pteron: by pteron.export
    dynamic: bool

    def __str__(self) -> str:
        return f"{self.lowering} {'dynamic' if self.dynamic else 'static'}"


MODES = {
    str(mode): mode
    for mode in (
        Mode("portable", dynamic=True),
        Mode("vulkan", dynamic=True),
        Mode("pteron", dynamic=True),
        Mode("vulkan", dynamic=False),
        Mode("portable", dynamic=False),
    )
}


def export_model(model: Model, module: torch.nn.Module, mode: Mode) -> bytes:
    example = model.inputs(model.largest)
    shapes = model.dynamic_shapes() if mode.dynamic else None
    if mode.lowering == "pteron":
        return pteron.export(module, example, dynamic_shapes=shapes).buffer
    return export(module, example, shapes, partitioner=mode.lowering == "vulkan")
