"""Everything about one node at a live shape: arguments, kernels, routes and why one was chosen."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pteron.compiler.ir.dispatch import Dispatch, Route, Scratch
from pteron.compiler.ir.live import LiveTensor
from pteron.compiler.ir.values import Arg, Graph, Node, SymInt, Tensor
from pteron.compiler.ir.work import cost
from pteron.compiler.ops import kernel as kernels
from pteron.compiler.plan.node_plan import NodePlan
from pteron.compiler.plan.routes import runnable_routes
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.executor import shader_text
from pteron.tools.viewer.fused_nodes import FusedNodes

FREE = "no kernel runs: the result has the bytes of an argument, or is an integer"


class Details:
    """A node of a planned graph."""

    def __init__(self, live: LiveGraph, unfused: Graph, node: Node) -> None:
        self.live = live
        self.unfused = unfused
        self.node = node
        plan = live.plans[node.index]
        assert plan is not None  # every integer has a value
        self.plan: NodePlan = plan

    def as_json(self) -> dict[str, Any]:
        node = self.node
        work = cost(node, self.live.current)
        sources = FusedNodes(self.live.graph, self.unfused).sources(node)
        return {
            "index": node.index,
            "operator": node.name,
            "meaning": inspect.getdoc(node.op.rule) if inspect.isfunction(node.op.rule) else None,
            "origin": node.origin if not sources else None,
            "runs": self.plan.route != "skipped",
            "arguments": list(self._arguments()),
            "route": self.plan.route,
            "routes": list(self._routes()),
            "dispatches": [self._dispatch(dispatch) for dispatch in self.plan.dispatches],
            "fused_from": [{"operator": s.name, "origin": s.origin} for s in sources],
            "flops": work.flops,
            "nbytes": work.nbytes,
        }

    # -- arguments ----------------------------------------------------------------------------------

    def _arguments(self) -> Iterator[dict[str, Any]]:
        spec = self.node.op
        last = len(spec.parameters) - 1
        for place, (name, arg) in enumerate(zip(spec.parameters, self.node.args, strict=True)):
            role = "result" if place == last else "changed" if name in spec.mutates else "argument"
            items = arg if isinstance(arg, tuple) and _has_values(arg) else (arg,)
            for number, item in enumerate(items):
                label = name if len(items) == 1 else f"{name}[{number}]"
                yield {"name": label, "role": role, **self._argument(item)}

    def _argument(self, arg: Arg) -> dict[str, Any]:
        if isinstance(arg, Tensor):
            shape = self.live.shape(arg)
            return {"value": arg.id, "dtype": arg.dtype.label, "shape": list(shape)}
        if isinstance(arg, SymInt):
            return {"value": arg.id, "number": self.live.current[arg.id]}
        return {"text": "none" if arg is None else _short(arg)}

    # -- kernels ------------------------------------------------------------------------------------

    def _dispatch(self, dispatch: Dispatch) -> dict[str, Any]:
        kernel = kernels.load(dispatch.kernel, dispatch.defines)
        return {
            "kernel": dispatch.kernel,
            "grid": list(dispatch.grid),
            "params": {name: _short(value) for name, value in dispatch.params.items()},
            "defines": {name: _short(value) for name, value in dispatch.defines.items()},
            "bindings": {name: self._bound(bound) for name, bound in dispatch.bindings.items()},
            "text": shader_text(kernel, dispatch),
        }

    def _bound(self, bound: Any) -> str:
        if isinstance(bound, LiveTensor):
            tensor = self.plan.own.get(bound.tensor.id, bound.tensor)
            return f"{tensor.name}: {bound.dtype.label}{list(bound.shape)}"
        if isinstance(bound, Scratch):
            return f"scratch, {bound.max_nbytes} bytes"
        if bound.symint is None:
            return str(bound.constant)
        symint = self.plan.own.get(bound.symint.id, bound.symint)
        return f"{symint.name} = {self.live.current[symint.id]}"

    # -- routes -------------------------------------------------------------------------------------

    def _routes(self) -> Iterator[dict[str, Any]]:
        """All routes that the rule offers here, in the order in which they are tried, then the others."""
        if self.plan.route == "skipped":
            yield {"name": "skipped", "chosen": True, "why": "the branch of this node is not taken"}
            return
        offered = self.live.offered(self.node)
        if not offered:
            yield {"name": "none", "chosen": True, "why": FREE}
        runnable = runnable_routes(offered, self.live.features)
        compiled = {route.name for route in self.live.routes[self.node.index]}
        for route in [*runnable, *(route for route in offered if route not in runnable)]:
            chosen = route.name == self.plan.route
            why = self._why_chosen(runnable) if chosen else self._why_not(route, runnable, compiled)
            yield {
                "name": route.name,
                "chosen": chosen,
                "why": why,
                "kernels": [dispatch.kernel for dispatch in route.dispatches],
            }

    def _why_chosen(self, runnable: list[Route]) -> str:
        fitting = [route for route in runnable if route.when is not False]
        if len(fitting) == 1:
            return "the only one that fits"
        if fitting[0].name == self.plan.route:
            return "the first that fits"
        return "measured to be the fastest on this device"

    def _why_not(self, route: Route, runnable: list[Route], compiled: set[str]) -> str:
        needed = (route.needs,) if isinstance(route.needs, str) else route.needs or ()
        missing = [need for need in needed if need not in self.live.features]
        if missing:
            return f"needs {' and '.join(missing)}, which this kind of device does not have"
        if route.when is False:
            return "does not fit this live shape"
        late = (
            f"; it is written for a {route.target}" if route.target not in (None, *self.live.features) else ""
        )
        if route.name not in compiled:
            always = next(other for other in runnable if other.when is None)
            return f"{always.name} comes first and always fits{late}"
        return f"{self.plan.route} is preferred{late}"


def _has_values(arg: tuple[Arg, ...]) -> bool:
    return any(isinstance(item, (Tensor, SymInt)) for item in arg)


def _short(value: object, most: int = 400) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= most else f"{text[:most]}…"
