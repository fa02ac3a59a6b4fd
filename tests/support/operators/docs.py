"""Writes docs/operators.md from the registry and the samples: `python -m tests.support.operators.docs`."""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

from pteron.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP
from pteron.ir.dtypes import DType
from pteron.ir.op import registered
from pteron.lower import kernel_calls
from tests.support.operators import (
    portable,
    samples,  # noqa: F401  gives every operator its samples
)
from tests.support.operators.sample import (
    LARGEST,
    SAMPLES,
    SMALLER,
    OneNodeGraph,
    Sample,
    is_integer_arithmetic,
)

PATH = Path(__file__).parents[3] / "docs" / "operators.md"

HEAD = """\
# Operators

`make docs` generates this page from the rules of the operators. A test checks that it is up to date.

- **Element types** are the types of the tensors that the operator computes with. Indices are int32, and
  conditions are bool. A host int64 or float64 is narrowed before the upload.
- **Live**: *sizes* means that the operator follows the live sizes of its inputs. A name is an integer that
  may change in a call without a new plan. *SymInts* means that the sizes are arguments, which may be SymInts.
- **Kernels** that run one after another are joined by +. The element types and the fixed shapes decide which
  kernels a program gets. Routes have names. All routes are compiled, and each call uses the first one that
  fits its live sizes. Kernels marked ◦ need subgroups or half precision.
- **int32\\***: a result outside of 32 bits wraps around. In torch's int64 it does not. Positions and sizes
  never wrap: the host computes them, and refuses values that do not fit.
- **Indices** in an input are checked before a call: one that is out of range is an error. An index that the
  program computes on the GPU is not checked: one that is out of range is replaced by a valid one.
"""

# Operators whose integer results may be larger than their operands.
WRAPPING = re.compile(
    r"aten\.(add|sub|rsub|mul|neg|abs|square|pow|bitwise_left_shift|sum|prod|cumsum|cumprod|arange|scatter_add"
    r"|scatter_reduce)\."
)


def page() -> str:
    # Operators that fusion passes make come last: they are in no file.
    names = sorted(SAMPLES, key=lambda name: ("fusion" in _family(name), _family(name), name))
    parts = [HEAD]
    for family, members in groupby(names, _family):
        title = re.split(r"[:.\n]", sys.modules[family].__doc__ or "")[0]
        parts.append(f"\n## {title}\n\n| operator | element types | live | kernels |\n|---|---|---|---|\n")
        parts += [_line(name) for name in members]
    integers = ", ".join(f"`{name}`" for name in sorted(filter(is_integer_arithmetic, registered())))
    parts.append(f"\n## Integers\n\nArithmetic on SymInts, done on the host while planning: {integers}.\n")
    parts.append(_portable())
    return "".join(parts)


def _portable() -> str:
    """ExecuTorch's kernels that Pteron does not support."""
    kernels = portable.recorded()
    missing = [kernel for kernel in kernels if kernel_calls.find(kernel) is None]
    listed = ", ".join(f"`{kernel}`" for kernel in missing) or "nothing"
    return (
        "\n## ExecuTorch's portable library\n\n"
        f"It has {len(kernels)} kernels, by the list in its wheel. Pteron runs {len(kernels) - len(missing)} "
        f"of them. Missing: {listed}.\n"
    )


def _family(name: str) -> str:
    return registered()[name].rule.__module__


def _line(name: str) -> str:
    given = SAMPLES[name]
    dtypes = {dtype for sample in given for dtype in sample.dtypes}
    types = " ".join(str(dtype) for dtype in DType if dtype in dtypes)
    if WRAPPING.match(name):
        types = types.replace("int32", "int32\\*")
    kernels = dict.fromkeys(text for s in given for dtype in s.dtypes for text in _kernels(name, s, dtype))
    return f"| `{name}` | {types} | {_live(name)} | {'; '.join(kernels)} |\n"


def _live(name: str) -> str:
    moving = any(repr(s.make(LARGEST)) != repr(s.make(SMALLER)) for s in SAMPLES[name])
    return ", ".join(["sizes" if moving else "SymInts", *sorted(registered()[name].uniforms)])


def _kernels(name: str, sample: Sample, dtype: DType) -> list[str]:
    found: dict[str, None] = {}
    for kind in (GPU, SOFTWARE):
        for route in OneNodeGraph(name, sample, dtype, [kind, SUBGROUP, HALF]).routes:
            kernels = " + ".join(dict.fromkeys(dispatch.kernel for dispatch in route.dispatches)) or "none"
            label = "" if route.name == "only" else f"{route.name}{'◦' if route.needs else ''}: "
            found[label + kernels] = None
    return list(found) or ["none"]


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(page(), "utf-8")
