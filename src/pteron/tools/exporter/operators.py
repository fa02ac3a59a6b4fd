"""Operators that a file may contain: those of torch's core set, and those that Pteron has besides."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig
from torch._export.verifier import SpecViolationError

from pteron.compiler.lower.kernel_calls import operator_names
from pteron.errors import UnsupportedError

OUTSIDE_CORE = re.compile(r"Operator torch\._ops\.(\S+) is not in Core ATen")


@functools.cache
def edge_config(checked: bool) -> EdgeCompileConfig:
    """ExecuTorch's options: it writes every operator of torch that Pteron has."""
    known = [*filter(None, map(_overload, operator_names()))]
    return EdgeCompileConfig(_check_ir_validity=checked, _core_aten_ops_exception_list=known)


def _overload(name: str) -> Any:
    """The operator of torch with a name such as aten.erfc.default."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def refuse_unknown_operators(error: SpecViolationError) -> None:
    """Raise an error that names the operators that neither ExecuTorch nor Pteron has, if there are any."""
    names = sorted(set(OUTSIDE_CORE.findall(str(error))))
    if names:
        raise UnsupportedError(
            f"the module uses {', '.join(names)}, which Pteron does not have, and torch cannot express by "
            "operators that it has: compute this outside the module"
        ) from None
