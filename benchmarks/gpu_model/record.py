"""Which kernels would a program run on a GPU, and with which grids and parameters? Needs no GPU.

    python -m benchmarks.gpu_model.record PROGRAM OUT.json

The program is loaded on a recording device that claims to be a GPU with subgroups and half-precision
arithmetic.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import pteron
import pteron.llm
from benchmarks.gpu_model.programs import LANGUAGE_MODELS, path_of
from benchmarks.gpu_model.recorded import Dispatch, Recorded, text_key
from pteron.api.method import Method
from pteron.compiler.ir.dispatch import GPU, HALF, MANY_REGISTERS, PRECISIONS, SUBGROUP
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops.products import ORDER
from pteron.compiler.sketch import found as leaves
from pteron.engine.devices.recording import RecordingDevice
from pteron.engine.state import State
from pteron.engine.steps import KernelDispatch, Step
from pteron.tools.verify.catalogue.arguments import Drawing, T
from pteron.tools.verify.catalogue.timed import TIMED
from pteron.tools.verify.single_node import open_graph

LANGUAGE_POINTS = "decode at 512:1@512,prefill 128:128@0"


def a_gpu() -> RecordingDevice:
    return RecordingDevice(frozenset({GPU, SUBGROUP, HALF, MANY_REGISTERS}))


def dispatches(method: Method, inputs: Any, state: State | None = None) -> list[Dispatch]:
    """What a call dispatches, in order."""
    with method.prepare(*inputs, state=state) as call:
        steps = enumerate(call.steps())
        return [_described(number, step, dispatch) for number, step in steps for dispatch in step.dispatches]


def _described(number: int, step: Step, dispatch: KernelDispatch) -> Dispatch:
    bound = dict(enumerate(dispatch.bindings))
    return Dispatch(
        key=text_key(dispatch.text),
        kernel=dispatch.kernel,
        node=number,
        op=step.node.name,
        route=step.route,
        grid=dispatch.grid,
        uniforms={str(n): bytes(b.contents or b"").hex() for n, b in bound.items() if b.kind == "uniform"},
        sizes={str(n): b.nbytes for n, b in bound.items() if b.kind != "uniform"},
        far=tuple(n for n, b in bound.items() if b.role in ("constant", "state")),
        flops=step.cost.flops or 0,
        nbytes=step.cost.nbytes,
    )


# What the names of routes that need many registers end with.
FOR_MANY_REGISTERS = tuple(kind.name for kind in ORDER if MANY_REGISTERS in kind.needs)


def texts(device: RecordingDevice, method: Method) -> dict[str, Any]:
    """Every compiled kernel, whether a point uses it or not."""
    routes: dict[str, set[str]] = {}
    for kernel in method.kernels:
        routes.setdefault(kernel.text, set()).add(kernel.route)
    return {
        text_key(made.source): {
            "key": text_key(made.source),
            "kernel": made.label,
            "routes": sorted(routes.get(made.source, ())),
            "kinds": made.kinds,
            "many_registers": all(
                route.endswith(FOR_MANY_REGISTERS) for route in routes.get(made.source, ("",))
            ),
            "text": made.source,
        }
        for made in device.pipelines.values()
    }


def language_model(source: Path, points: str, precision: str) -> Recorded:
    """points: `name:tokens@position`, with commas between them."""
    device, found = a_gpu(), {}
    with pteron.llm.load(source, device=device, precision=precision) as model:
        method, state = model.decoder.method, model.decoder.new_state()
        for point in points.split(","):
            name, _, rest = point.partition(":")
            count, _, position = rest.partition("@")
            inputs = model.decoder.inputs([1] * int(count), int(position or 0))
            found[name] = dispatches(method, inputs, state)
        return Recorded(texts(device, method), found)


def program(source: Path, shapes: dict[str, tuple[int, ...]], precision: str) -> Recorded:
    """A `.pte` program at its largest shapes, or at those given for some inputs."""
    device = a_gpu()
    with pteron.load(source, device=device, tune=False, precision=precision) as loaded:
        method = loaded.method()
        inputs = [np.zeros(shapes.get(i.name, i.max_shape), i.dtype) for i in method.inputs]
        point = "x".join(map(str, inputs[0].shape))
        return Recorded(texts(device, method), {point: dispatches(method, inputs)})


def cases(parts: str, precision: str) -> Recorded:
    """The operators and shapes of `pteron bench --report`. A point is a family of operators.

    parts: what `FAMILY: NAME` of a case must contain, with | between alternatives.
    """
    found = Recorded({}, {})
    suffix = "" if precision == "float32" else f", {precision}"
    for number, case in enumerate(TIMED):
        if not any(part in f"{case.family}: {case.name}" for part in parts.split("|")):
            continue
        device, draw = a_gpu(), Drawing(DType.float32)
        features = (*device.route_features, *PRECISIONS[precision])
        with open_graph(case.graph(draw), device, features) as method:
            inputs = [draw(leaf) for leaf in leaves(case.args[:-1], (T,)) if not leaf.fixed]
            found.texts.update(texts(device, method))
            for one in dispatches(method, inputs):
                named = {"route": f"{one.route}, {case.name}", "node": 1000 * number + one.node}
                point = found.points.setdefault(case.family + suffix, [])
                point.append(Dispatch(**{**vars(one), **named}))
    return found


def shape_of(text: str) -> tuple[str, tuple[int, ...]]:
    """`input0=1x3x224x224`"""
    name, _, sizes = text.partition("=")
    return name, tuple(map(int, sizes.split("x")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("out", type=Path)
    parser.add_argument("--points", default=LANGUAGE_POINTS)
    parser.add_argument("--shape", action="append", default=[], type=shape_of)
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    given = parser.parse_args()
    kind, _, rest = given.program.partition(":")
    if kind == "cases":
        found = cases(rest, given.precision)
    elif given.program in LANGUAGE_MODELS or given.program.endswith(".gguf"):
        found = language_model(path_of(given.program), given.points, given.precision)
    else:
        found = program(path_of(given.program), dict(given.shape), given.precision)
    found.write(given.out)


if __name__ == "__main__":
    main()
