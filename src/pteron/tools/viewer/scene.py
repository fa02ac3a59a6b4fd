"""A method as the page shows it: its graph, planned for a kind of device. No GPU is needed.

with open_file("model.pte") as file:
    scene = Scene(file, "forward", target=KINDS["GPU"])
    scene.graph_json()
    scene.live_json({"input0[1]": 7})
    scene.node_json(3, {"input0[1]": 7})
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from pteron.compiler.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP
from pteron.compiler.ir.values import Node, SymInt, Tensor, Value, ValueId
from pteron.compiler.lower.bounds import GivenShapes
from pteron.compiler.pipeline import PORTABLE, GraphOptions, Target, lower
from pteron.errors import InputError
from pteron.pte.file import ProgramFile
from pteron.tools.viewer.graph_form import graph_form
from pteron.tools.viewer.memory_form import memory_form
from pteron.tools.viewer.node_details import Details
from pteron.tools.viewer.size_controls import changes_for, find_controls, within_guards

# Kinds of device, with the features that kernels may use there.
KINDS: Mapping[str, Target] = {
    "GPU": Target({GPU}),
    "GPU with subgroups and f16": Target({GPU, SUBGROUP, HALF}),
    "software adapter": Target({SOFTWARE, SUBGROUP}),
    "portable": PORTABLE,
}


class Scene:
    """One method. Several threads may ask it for facts at different sizes."""

    def __init__(
        self,
        file: ProgramFile,
        method: str,
        *,
        target: Target = KINDS["GPU"],
        fused: bool = True,
        shapes: GivenShapes | None = None,
    ) -> None:
        lowered = lower(file, [method], GraphOptions(fuse=None if fused else (), shapes=shapes))
        self.live = lowered.plan(target)[method]
        self.graph, self.unfused = self.live.graph, lowered.unfused[method]
        self.controls = find_controls(self.live)
        self._lock = threading.Lock()

    @contextmanager
    def at(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Move to these sizes. Nobody else moves the scene inside the `with`."""
        with self._lock:
            self.live.sweep(changes_for(self.graph, self.controls, sizes))
            yield

    def graph_json(self) -> dict[str, Any]:
        """Return what does not depend on sizes."""
        with self.at({}):
            controls = within_guards(self.live, self.controls)
            return {
                **graph_form(self.graph, self.unfused, self.live),
                "controls": [
                    {
                        "name": c.name,
                        "low": c.low,
                        "high": c.high,
                        "step": c.step,
                        "value": c.value,
                        "size": bool(c.dims),
                    }
                    for c in controls
                ],
            }

    def live_json(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Every value that is not a constant, and the route and grids of every node."""
        with self.at(sizes):
            return {
                "values": {
                    v.id: _listed(self.live.current[v.id]) for v in self.graph.values if not _is_constant(v)
                },
                "routes": [plan.route if plan else "" for plan in self.live.plans],
                "grids": [
                    [list(d.grid) for d in plan.dispatches] if plan else [] for plan in self.live.plans
                ],
                "ranges": {c.name: [c.low, c.high] for c in within_guards(self.live, self.controls)},
            }

    def node_json(self, index: int, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Everything about one node."""
        with self.at(sizes):
            return Details(self.live, self.unfused, self.node(index)).as_json()

    def memory_json(self) -> dict[str, Any]:
        return memory_form(self.live)

    def node(self, index: int) -> Node:
        if not 0 <= index < len(self.graph.nodes):
            raise InputError(f"there is no node {index}; the method has {len(self.graph.nodes)} nodes")
        return self.graph.nodes[index]

    def tensor(self, value: int) -> Tensor:
        found = self.graph.values[value] if 0 <= value < len(self.graph.values) else None
        if not isinstance(found, Tensor):
            raise InputError(f"there is no tensor {value}")
        return found

    def integers(self, sizes: Mapping[str, int]) -> dict[ValueId, int]:
        """The chosen integers, by the SymInts that have them."""
        return {i: sizes.get(c.name, c.value) for c in self.controls for i in c.integers}

    def input_shapes(self, sizes: Mapping[str, int]) -> dict[ValueId, Any]:
        changes = changes_for(self.graph, self.controls, sizes)
        return {i: live for i, live in changes.items() if isinstance(live, tuple)}


def method_json(info: Any) -> dict[str, Any]:
    """The facts of `pteron inspect` about a method."""
    return {"runs": info.runs, "constant": info.is_constant, **asdict(info)}


def _is_constant(value: Value) -> bool:
    return not isinstance(value, SymInt) and value.constant is not None


def _listed(live: Any) -> Any:
    return list(live) if isinstance(live, tuple) else live
