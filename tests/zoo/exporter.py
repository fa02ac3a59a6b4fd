"""Export a model of the zoo to `.pte` files, in several modes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

import pteron
from tests.support.export import lower, quantized_int8, xnnpack_partitioner
from tests.zoo.model import Model


@dataclass(frozen=True)
class Mode:
    """The way of lowering, and whether the program has a dynamic dimension."""

    # vulkan, xnnpack: by ExecuTorch's partitioner, portable: without one, pteron: by pteron.export;
    # xnnpack int8: after quantization
    lowering: str
    dynamic: bool

    @property
    def is_quantized(self) -> bool:
        return self.lowering.endswith("int8")

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
        Mode("xnnpack", dynamic=True),
        Mode("xnnpack int8", dynamic=False),
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
        if mode.is_quantized:
            quantized = quantized_int8(self.module, self._example())
            return lower(torch.export.export(quantized, self._example()), xnnpack_partitioner())
        if mode.lowering == "xnnpack":
            return lower(self._program(mode.dynamic), xnnpack_partitioner(), any_operator=True)
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
