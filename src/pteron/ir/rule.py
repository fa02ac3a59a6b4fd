"""All that the author of an operator imports.

from pteron.ir.rule import Dispatch, LiveTensor, op, threads

@op("et_vk.example.default")
def example(x: LiveTensor, out: LiveTensor) -> Dispatch:
    out.resize(x.shape)
    return Dispatch("example", {"x": x, "y": out}, {"count": x.numel}, threads(x.numel))
"""

from pteron.ir.dispatch import (
    GPU,
    HALF,
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
from pteron.ir.dtypes import DType
from pteron.ir.live import LiveInt, LiveResult, LiveTensor
from pteron.ir.op import OpError, check, op
from pteron.ir.values import Shape, numel

__all__ = [
    "GPU",
    "HALF",
    "SOFTWARE",
    "SUBGROUP",
    "WORKGROUP",
    "Bound",
    "DType",
    "Define",
    "Dispatch",
    "Grid",
    "LiveInt",
    "LiveResult",
    "LiveTensor",
    "Number",
    "OpError",
    "Planned",
    "Route",
    "Scratch",
    "Shape",
    "Shared",
    "check",
    "copy_dispatch",
    "describe",
    "fold",
    "numel",
    "op",
    "quads",
    "threads",
]
