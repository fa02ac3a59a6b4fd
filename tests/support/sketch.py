"""Graphs that tests build without a file."""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Graph, Value
from pteron.compiler.plan.memory import Layout
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.sketch import Sketch, found, replaced

__all__ = ["Sketch", "found", "live", "replaced", "shape_of"]


def live(graph: Graph, **options: Any) -> LiveGraph:
    return LiveGraph(graph, Layout.of(graph), **options)


def shape_of(graph: LiveGraph, value: Value) -> Live:
    return graph.current[value.id]
