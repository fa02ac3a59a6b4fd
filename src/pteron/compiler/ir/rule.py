"""Everything that the author of an operator needs to import.

from pteron.compiler.ir.rule import Dispatch, LiveTensor, op, threads

@op("et_vk.example.default")
def example(x: LiveTensor, out: LiveTensor) -> Dispatch:
    out.resize(x.shape)
    return Dispatch("example", {"x": x, "y": out}, {"count": x.numel}, threads(x.numel))
"""

from pteron.compiler.ir.checks import OpError, check
from pteron.compiler.ir.dispatch import (
    GPU,
    HALF,
    MANY_REGISTERS,
    ROUNDS_TO_8,
    ROUNDS_TO_16,
    SOFTWARE,
    SUBGROUP,
    WORKGROUP,
    Bound,
    Define,
    Dispatch,
    Grid,
    Number,
    Planned,
    Route,
    Scratch,
    Shared,
    copy_dispatch,
    describe,
    fold,
    quads,
    threads,
)
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.kinds import Scalar, Unused
from pteron.compiler.ir.live import LiveInt, LiveResult, LiveTensor
from pteron.compiler.ir.op import op
from pteron.compiler.ir.row_rules import (
    ELEMENTWISE,
    EXPANDED,
    PERMUTED,
    RESHAPED,
    VIEWED,
    MixesRows,
    RowArguments,
    RowRule,
    RowWise,
    Segmented,
    looked_up,
    rows_of,
)
from pteron.compiler.ir.values import Shape, numel
from pteron.compiler.ir.work import (
    LiveArguments,
    Work,
    WorkRule,
    first_rows,
    looks_up,
    multiplies,
    reads_only_shape_of,
    reads_part_of,
)

__all__ = [
    "ELEMENTWISE",
    "EXPANDED",
    "GPU",
    "HALF",
    "MANY_REGISTERS",
    "PERMUTED",
    "RESHAPED",
    "ROUNDS_TO_8",
    "ROUNDS_TO_16",
    "SOFTWARE",
    "SUBGROUP",
    "VIEWED",
    "WORKGROUP",
    "Bound",
    "DType",
    "Define",
    "Dispatch",
    "Grid",
    "LiveArguments",
    "LiveInt",
    "LiveResult",
    "LiveTensor",
    "MixesRows",
    "Number",
    "OpError",
    "Planned",
    "Route",
    "RowArguments",
    "RowRule",
    "RowWise",
    "Scalar",
    "Scratch",
    "Segmented",
    "Shape",
    "Shared",
    "Unused",
    "Work",
    "WorkRule",
    "check",
    "copy_dispatch",
    "describe",
    "first_rows",
    "fold",
    "looked_up",
    "looks_up",
    "multiplies",
    "numel",
    "op",
    "quads",
    "reads_only_shape_of",
    "reads_part_of",
    "rows_of",
    "threads",
]
