"""The outputs of a product: one output, or up to three outputs with consecutive columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pteron.compiler.ir.rule import Define, LiveTensor

MAX_OUTPUTS = 3
NAMES = ("y", "y2", "y3")


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Bindings, parameters and defines for kernels that include lib/outputs.wgsl."""

    columns: int  # of all outputs
    bindings: dict[str, LiveTensor]
    params: dict[str, int]
    defines: dict[str, Define]

    @classmethod
    def of(cls, outs: Sequence[LiveTensor]) -> SideBySide:
        """The outputs must have their live shapes. Only the numbers of their columns may differ."""
        begins = [0, *accumulate(out.shape[-1] for out in outs)]
        columns = begins[-1]
        second, third = (begins[i] if i < len(outs) else columns for i in (1, 2))
        return cls(
            columns,
            dict(zip(NAMES, outs, strict=False)),
            {"columns": columns, "second": second, "third": third},
            {"OUTPUTS": len(outs)},
        )
