"""Compare the outputs of a whole call with those that are expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.compiler.ir.values import Graph, Shape, Tensor, ValueId
from pteron.tools.verify.comparison import compare
from pteron.tools.verify.verify_report import NodeResult

DRAWS = ("aten.rand.", "aten.randn.")


def compare_outputs(
    method: Method,
    made: Sequence[Any],
    wanted: Sequence[Any],
    reference: str,
    *,
    call: str = "",
    reads: tuple[Shape, ...] = (),
    slack: int = 1,
) -> Iterator[NodeResult]:
    """A result for each output that is a tensor and does not depend on random numbers.

    call: which call it was, for the report. slack: the allowed error as a multiple of that of a node.
    """
    random = random_values(method.graph)
    for number, (port, got, want) in enumerate(zip(method.graph.outputs, made, wanted, strict=True)):
        if isinstance(port.value, Tensor) and port.value.id not in random:
            found = compare("", port.value.dtype, np.asarray(got), want, 0.0)
            yield NodeResult(
                index=number,
                op=f"output {port.name}{call}",
                route="",
                kernels=(),
                reads=reads,
                reference=reference,
                share=found.share / slack,
                output=number,
                element=found.element,
                expected=found.expected,
                found=found.found,
                method=method.name,
            )


def random_values(graph: Graph) -> set[ValueId]:
    """The values that depend on random numbers. Their generator is not that of a reference."""
    found: set[ValueId] = set()
    for node in graph.nodes:
        if node.name.startswith(DRAWS):  # it also changes a counter, which is not random
            found |= {value.id for value in node.writes}
        elif not found.isdisjoint(value.id for value in node.reads):
            found |= {value.id for value in (*node.writes, *node.mutates)}
    return found
