"""The outputs of a product: one, or up to three whose columns stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.graph.live import LiveTensor
from pteron.graph.values import Shape

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
    def of(cls, outs: Sequence[LiveTensor], rows: Shape) -> SideBySide:
        """Outputs as wide as they are, resized to the rows of this call."""
        begins = [0]
        for out in outs:
            width = out.max_shape[-1]
            out.resize((*rows, width))
            begins.append(begins[-1] + width)
        columns = begins[-1]
        second, third = (begins[i] if i < len(outs) else columns for i in (1, 2))
        return cls(
            columns,
            dict(zip(_NAMES, outs, strict=False)),
            {"columns": columns, "second": second, "third": third},
            {"SECOND": len(outs) > 1, "THIRD": len(outs) > 2},
        )


__all__ = ["MOST", "SideBySide"]
