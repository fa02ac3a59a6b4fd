"""The outputs of a product: one, or up to three whose columns stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pteron.ir.rule import LiveTensor

MOST = 3
_NAMES = ("y", "y2", "y3")


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What kernels that include lib/outputs.wgsl must be told."""

    columns: int  # of all together
    bindings: dict[str, LiveTensor]
    params: dict[str, int]
    defines: dict[str, bool]

    @classmethod
    def of(cls, outs: Sequence[LiveTensor]) -> SideBySide:
        """Outputs at their live shapes, which differ in their columns alone."""
        begins = [0, *accumulate(out.shape[-1] for out in outs)]
        columns = begins[-1]
        second, third = (begins[i] if i < len(outs) else columns for i in (1, 2))
        return cls(
            columns,
            dict(zip(_NAMES, outs, strict=False)),
            {"columns": columns, "second": second, "third": third},
            {"SECOND": len(outs) > 1, "THIRD": len(outs) > 2},
        )
