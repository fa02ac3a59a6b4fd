"""Writes docs/operators.md from the registry and the catalogue: `python -m tests.support.operators.docs`."""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from pteron.compiler.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.lower import instructions
from pteron.compiler.ops import registered
from pteron.compiler.sketch import found
from pteron.tools.verify.catalogue import CATALOGUE, OperatorEntry
from pteron.tools.verify.catalogue.arguments import LEAVES
from tests.support.operators import executorch_kernels
from tests.support.operators.graphs import LiveEntry, is_integer_arithmetic

PATH = Path(__file__).parents[3] / "docs" / "operators.md"

HEAD = """\
# Operators

`make docs` generates this page from the rules of the operators. A test checks that it is up to date.

- **Element types** are the types of the tensors that the operator computes with. Indices are int32, and
  conditions are bool. A host float64 is narrowed before the upload.
- **int64** has two words on the GPU. A program's int64 tensor is an int32 there if its values provably fit,
  or if only its low word matters. An operator without int64 in its line takes only such tensors: a program
  with others is refused at load.
- **Live**: *sizes* means that the operator follows the live sizes of its inputs. A name is an integer that
  may change in a call without a new plan. *SymInts* means that the sizes are arguments, which may be SymInts.
- **Kernels** that run one after another are joined by +. The element types and the fixed shapes decide which
  kernels a program gets. Routes have names. All routes are compiled, and each call uses the first one that
  fits its live sizes. Kernels marked ◦ need subgroups or half precision.
- **Indices** in an input are checked before a call: one that is out of range is an error. An index that the
  program computes on the GPU is not checked: one that is out of range is replaced by a valid one.
"""


def page() -> str:
    names = sorted(CATALOGUE, key=lambda name: (_family(name), name))
    parts = [HEAD]
    for family, members in groupby(names, _family):
        title = re.split(r"[:.\n]", sys.modules[family].__doc__ or "")[0]
        parts.append(f"\n## {title}\n\n| operator | element types | live | kernels |\n|---|---|---|---|\n")
        parts += [line(name) for name in members]
    integers = ", ".join(f"`{name}`" for name in sorted(filter(is_integer_arithmetic, registered())))
    parts.append(f"\n## Integers\n\nArithmetic on SymInts, done on the host while planning: {integers}.\n")
    parts.append(_executorch())
    return "".join(parts)


def _executorch() -> str:
    """ExecuTorch's kernels that Pteron does not run."""
    kernels = executorch_kernels.recorded()
    missing = [kernel for kernel in kernels if not instructions.runs(kernel)]
    listed = ", ".join(f"`{kernel}`" for kernel in missing) or "nothing"
    return (
        "\n## ExecuTorch's kernels\n\n"
        f"Its wheel has {len(kernels)} kernels: portable and optimized ones, those of quantized programs and "
        f"those of language models. Pteron runs {len(kernels) - len(missing)} of them. Missing: {listed}.\n"
    )


def _family(name: str) -> str:
    return registered()[name].rule.__module__


def line(name: str) -> str:
    entries = CATALOGUE[name]
    dtypes = {dtype for entry in entries for dtype in entry.dtypes}
    types = " ".join(str(dtype) for dtype in DType if dtype in dtypes)
    kernels = dict.fromkeys(
        text for entry in entries for dtype in entry.dtypes for text in _kernels(entry, dtype)
    )
    return f"| `{name}` | {types} | {_live(name)} | {'; '.join(kernels)} |\n"


def _live(name: str) -> str:
    moving = any(
        _shapes(entry, entry.sizes[0]) != _shapes(entry, entry.sizes[1]) for entry in CATALOGUE[name]
    )
    return ", ".join(["sizes" if moving else "SymInts", *sorted(registered()[name].uniforms)])


def _shapes(entry: OperatorEntry, size: int) -> list[Any]:
    return [getattr(leaf, "shape", None) for leaf in found(entry.make(size), LEAVES)]


def _kernels(entry: OperatorEntry, dtype: DType) -> list[str]:
    found: dict[str, None] = {}
    for kind in (GPU, SOFTWARE):
        for route in LiveEntry(entry, dtype, [kind, SUBGROUP, HALF]).routes:
            kernels = " + ".join(dict.fromkeys(dispatch.kernel for dispatch in route.dispatches)) or "none"
            label = "" if route.name == "only" else f"{route.name}{'◦' if route.needs else ''}: "
            found[label + kernels] = None
    return list(found) or ["none"]


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(page(), "utf-8")
