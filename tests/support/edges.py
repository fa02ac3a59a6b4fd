"""The arguments with which every elementwise operator is tested at the edges of its types.

They are NaN, infinities, zeros of both signs, denormal numbers, very large and very small numbers, and for
operators with one operand the whole range of floats. The operators, their parameters and their functions in
torch follow from the registry: a new operator needs a line here only if `SCALARS` lacks its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import product
from typing import Any

import torch
from torch import Tensor

from pteron.compiler.ir.rule import LiveTensor
from pteron.compiler.ops import registered
from pteron.compiler.ops.elementwise import ElementwiseRule
from tests.support.rules import STORED

# fmt: off
_SIZES = [
    0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-30, 1e-5, 0.1, 0.3, 0.5, 0.7, 0.999999, 1.0, 1.000001, 1.5,
    1.5707964, 2.0, 2.5, 3.0, 3.1415927, 3.5, 4.0, 5.0, 9.5, 10.0, 20.0, 22.0, 45.0, 64.0, 87.0, 88.5, 89.0,
    103.5, 127.0, 200.0, 255.0, 1e3, 12345.678, 1e5, 1e6, 8388607.5, 16777216.0, 2147483648.0, 1e10, 1e20,
    1e22, 3e38, 3.4028235e38, math.inf,
]
_WHOLE = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 46341, 65536, 16777217, 2**30, 2**31 - 1]
# fmt: on
_FLOATS = torch.tensor([*_SIZES, *(-x for x in _SIZES), math.nan])
_BYTES = [0, 1, 2, 3, 5, 7, 8, 31, 64, 127, 128, 129, 200, 253, 255]

EDGES = {
    torch.float32: _FLOATS,
    torch.float16: _FLOATS.half().unique(),
    torch.bfloat16: _FLOATS.bfloat16().unique(),
    torch.int32: torch.tensor([*_WHOLE, *(-x - 1 for x in _WHOLE)], dtype=torch.int32),
    torch.int8: torch.tensor(_BYTES).to(torch.int8),
    torch.uint8: torch.tensor(_BYTES).to(torch.uint8),
    torch.bool: torch.tensor([False, True]),
}
_SPREAD = torch.cat([torch.logspace(-44.5, 38.53, 700), torch.linspace(0, 112, 449)])
RANGE = torch.cat([_FLOATS, _SPREAD, -_SPREAD])  # for operators with one operand
FEW = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e-40, 3e38, -math.inf, math.inf, math.nan])  # with three operands

# Two operands of different types.
MIXED = [
    (torch.int32, torch.float32),
    (torch.float32, torch.bool),
    (torch.float16, torch.float32),
    (torch.uint8, torch.int8),
    (torch.int8, torch.int32),
]

# The values of the other parameters.
SCALARS: dict[str, list[Any]] = {
    "other": [2, -3, 0, 2.5, 1000, -0.0, math.inf, math.nan],
    "alpha": [1, 2],
    "base": [2, -2.0, 0.0, 1, 0.5, math.inf],
    "rounding_mode": [None, "floor", "trunc"],
    "low": [None, -1, 1.5],
    "high": [None, 2],
    "approximate": ["none", "tanh"],
    "eps": [None, 1e-3],
    "value": [2, -1.5, math.inf],
    "weight": [0.25, 0.75],
    "non_blocking": [False],
}

# The other arguments of operators whose parameters belong together, or mean something else.
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "aten.celu.default": [(1.0,), (-2.0,)],
    "aten.elu.default": [(1.5, 1.1, 0.9)],
    "aten.hardshrink.default": [(0.5,), (0.0,)],
    "aten.hardtanh.default": [(-0.5, 2.0)],
    "aten.leaky_relu.default": [(0.1,), (-0.5,), (0.0,)],
    "aten.softplus.default": [(1.0, 20.0), (2.0, 5.0)],
    "aten.softshrink.default": [(0.5,), (0.0,)],
    "aten.threshold.default": [(0.1, -7.0)],
}

# The last operand has no dimensions.
SCALAR_LAST = ("aten.fill.Tensor", "aten.masked_fill.Tensor")

# torch raises an error where an integer is divided by zero, and the process ends at -2^31 / -1.
DIVISIONS = ("div", "floor_divide", "fmod", "remainder")


@dataclass(frozen=True)
class Case:
    """One call of an operator."""

    name: str
    args: Sequence[Any]

    def __call__(self) -> Tensor:
        """The result of torch."""
        function = torch_function(self.name)
        named = [a.name for a in function._schema.arguments[: len(self.args)] if a.kwarg_only]
        plain = self.args[: len(self.args) - len(named)]
        result: Tensor = function(*plain, **dict(zip(named, self.args[len(plain) :], strict=True)))
        return result

    @property
    def operands(self) -> list[Tensor]:
        return [arg for arg in self.args if isinstance(arg, Tensor)]

    def __str__(self) -> str:
        said = [str(a.dtype)[6:] if isinstance(a, Tensor) else repr(a) for a in self.args]
        return f"{self.name}({', '.join(said)})"


def operators() -> list[str]:
    """The elementwise operators that torch has."""
    names = [name for name, spec in registered().items() if isinstance(spec.rule, ElementwiseRule)]
    return sorted(name for name in names if name.startswith("aten.") and name != "aten._to_copy.default")


def torch_function(name: str) -> Any:
    _, base, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, base), overload)


def cases(name: str) -> Iterator[Case]:
    """Each combination of types and of other arguments that torch accepts."""
    rule = registered()[name].rule
    assert isinstance(rule, ElementwiseRule)
    *parameters, _ = signature(rule.describe, eval_str=True).parameters.values()
    tensors = [p.name for p in parameters if p.annotation in (LiveTensor, LiveTensor | None)]
    others = [p.name for p in parameters if p.name not in tensors]
    given = ARGUMENTS.get(name) or list(product(*(SCALARS[other] for other in others)))
    for dtypes, values in product(_types(len(tensors)), given):
        operands = dict(zip(tensors, _operands(name, dtypes), strict=True))
        rest = iter(values)
        case = Case(name, [operands[p.name] if p.name in operands else next(rest) for p in parameters])
        if _accepted(case):
            yield case


def _accepted(case: Case) -> bool:
    try:
        return case().dtype in STORED
    except (RuntimeError, NotImplementedError):
        return False


def _types(count: int) -> list[tuple[torch.dtype, ...]]:
    same = [(dtype,) * count for dtype in EDGES]
    if count == 3:
        same += [(torch.bool, dtype, dtype) for dtype in EDGES] + [
            (dtype, torch.bool, dtype) for dtype in EDGES
        ]
    return same + MIXED if count == 2 else same


def _operands(name: str, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    """Tensors that together have every combination of values, by broadcasting."""
    if len(dtypes) == 1:
        return [RANGE if dtypes[0] is torch.float32 else EDGES[dtypes[0]]]
    values = [_few(dtype) if len(dtypes) == 3 else EDGES[dtype] for dtype in dtypes]
    if name.split(".")[1] in DIVISIONS and not dtypes[-1].is_floating_point:
        values[-1] = values[-1][(values[-1] + 1).abs() > 1]
    spread = [
        x.reshape([-1 if d == place else 1 for d in range(len(values))]) for place, x in enumerate(values)
    ]
    if name == "aten.copy.default":  # its result has the shape of x
        spread[0] = spread[0].expand(torch.broadcast_shapes(*(x.shape for x in spread))).contiguous()
    return [*spread[:-1], values[-1][-1]] if name in SCALAR_LAST else spread


def _few(dtype: torch.dtype) -> Tensor:
    return FEW.to(dtype) if dtype.is_floating_point else EDGES[dtype][::3]


# -- conversions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cast(Case):
    """A conversion to a dtype, which is not an argument of the rule."""

    dtype: torch.dtype

    def __call__(self) -> Tensor:
        return self.operands[0].to(self.dtype)

    def __str__(self) -> str:
        return f"{self.operands[0].dtype} to {self.dtype}"


def casts() -> list[Cast]:
    return [Cast("pteron.cast", [EDGES[source]], target) for source, target in product(EDGES, EDGES)]
