"""The outputs of a product: one output, or up to three outputs with consecutive columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pteron.ir.rule import Dispatch, LiveTensor, Scratch

MAX_OUTPUTS = 3
_NAMES = ("y", "y2", "y3")


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Bindings, parameters and defines for kernels that include lib/outputs.wgsl."""

    columns: int  # of all outputs
    bindings: dict[str, LiveTensor]
    params: dict[str, int]
    defines: dict[str, bool]

    @classmethod
    def of(cls, outs: Sequence[LiveTensor]) -> SideBySide:
        """The outputs must have their live shapes. Only the numbers of their columns may differ."""
        begins = [0, *accumulate(out.shape[-1] for out in outs)]
        columns = begins[-1]
        second, third = (begins[i] if i < len(outs) else columns for i in (1, 2))
        return cls(
            columns,
            dict(zip(_NAMES, outs, strict=False)),
            {"columns": columns, "second": second, "third": third},
            {"SECOND": len(outs) > 1, "THIRD": len(outs) > 2},
        )


def with_three_outputs(dispatch: Dispatch) -> Dispatch:
    """The same dispatch with a text for three outputs. Nothing is written to those that it does not have.

    Products with one, two and three outputs then share a text, which is compiled once.
    """
    spare = {name: Scratch(name, 16) for name in _NAMES if name not in dispatch.bindings}
    return replace(
        dispatch,
        bindings={**dispatch.bindings, **spare},
        defines={**dispatch.defines, "SECOND": True, "THIRD": True},
    )
