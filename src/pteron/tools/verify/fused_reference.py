"""Compute a node that fusion made: the nodes of the file that it replaced, one after another."""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.values import Graph, Tensor, Value, ValueId
from pteron.engine.arrays.numpy_arrays import convert_constant, from_gpu
from pteron.tools.verify.references import NoReference, Reference
from pteron.tools.verify.walk import NodeRun, originals, results


class FusedReference:
    """A mistake of a fusion pass is found, too: the pass has no part in this computation.

    steps: what computes each of the nodes.
    """

    def __init__(self, steps: Reference) -> None:
        self.name = ""  # the references of all steps
        self._steps = steps

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        if not run.node.replaces:
            raise NoReference(f"no pass has made {run.node.name}")
        known = dict(run.given)
        names: dict[str, None] = {}
        for node in originals(run.node):
            given = {value.id: _value(known, value) for value in (*node.reads, *node.mutates)}
            made = self._steps.outputs(graph, NodeRun(node, "", (), given, []))
            names[self._steps.name] = None
            known |= {tensor.id: array for tensor, array in zip(results(node), made, strict=True)}
        self.name = " and ".join(names)
        return [_value(known, tensor) for tensor in run.results]


def _value(known: dict[ValueId, Any], value: Value) -> Any:
    """Look up a value: an input of the fused node, an earlier result, or a packed constant."""
    if value.id in known:
        return known[value.id]
    if isinstance(value, Tensor) and value.constant is not None:
        return from_gpu(convert_constant(value), value.dtype, value.dtype.label, value.max_shape)
    raise NoReference(f"{value} is not computed any more")
