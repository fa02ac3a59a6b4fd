"""Export a model of the zoo to `.pte` files, in several modes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

import pteron
from tests.support.export import lower
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


class Exporter:
    """Exports one model. Modes share the programs of torch.export: one static, one dynamic."""

    def __init__(self, model: Model, module: torch.nn.Module) -> None:
        self.model = model
        self.module = module
        self._programs: dict[bool, ExportedProgram | Exception] = {}

    def export(self, mode: Mode) -> bytes:
        if mode.lowering == "pteron":
            shapes = self._dynamic_shapes(mode.dynamic)
            return pteron.export(self.module, self._example(), dynamic_shapes=shapes).buffer
        return lower(self._program(mode.dynamic), partitioner=mode.lowering == "vulkan")

    def _program(self, dynamic: bool) -> ExportedProgram:
        if dynamic not in self._programs:
            try:
                self._programs[dynamic] = torch.export.export(
                    self.module, self._example(), dynamic_shapes=self._dynamic_shapes(dynamic)
                )
            except Exception as error:  # the other lowering fails with it too
                self._programs[dynamic] = error
        program = self._programs[dynamic]
        if isinstance(program, Exception):
            raise program
        return program

    def _example(self) -> tuple[torch.Tensor, ...]:
        return self.model.inputs(self.model.largest)

    def _dynamic_shapes(self, dynamic: bool) -> object:
        return self.model.dynamic_shapes() if dynamic else None
