"""Compute a node with a reference of the catalogue: for operators that torch does not have."""

from __future__ import annotations

from inspect import signature
from typing import Any

from pteron.compiler.ir.values import Graph, SymInt, Tensor
from pteron.compiler.sketch import replaced
from pteron.tools.verify.catalogue.entry import GENERAL, computed
from pteron.tools.verify.references import NoReference
from pteron.tools.verify.walk import NodeRun


class NumpyReference:
    name = "numpy"

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        reference = GENERAL.get(run.node.name)
        if reference is None:
            raise NoReference(f"the catalogue has no reference for all arguments of {run.node.name}")
        args = replaced(run.node.args[:-1], (Tensor, SymInt), lambda value: run.given[value.id])
        known = {"width": run.results[0].max_shape[-1], "held": run.results[-1].dtype}
        wanted = {name: known[name] for name in signature(reference).parameters if name in known}
        try:
            return computed(reference, args, **wanted)
        except (IndexError, TypeError, ValueError) as error:  # Pteron accepts more than the reference
            raise NoReference(f"{run.node.name}: {error}") from None
