"""`pteron profile`: where the time of a call goes, by operator, by node, and on a timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from rich.text import Text

from pteron.cli import common
from pteron.cli.arguments import parse_bounds
from pteron.cli.output_places import prepare_file
from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading, nbytes, plural, print_json

if TYPE_CHECKING:
    from pteron.api.profiling.profile import NodeProfile, OpProfile, Profile


Order: TypeAlias = Literal["op", "node"]


def profile(
    model: common.Model,
    inputs: common.Inputs = None,
    shapes: common.Shapes = None,
    live: common.LiveSize = None,
    random: common.Random = False,
    seed: common.Seed = 0,
    method: common.MethodName = "forward",
    repeat: common.Repeat = 5,
    by: Annotated[
        Order | None, typer.Option("--by", help="Show only this table. Default: both.", case_sensitive=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Maximum rows per table.")] = 15,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a timeline for ui.perfetto.dev, as JSON.")
    ] = None,
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    device: common.DeviceName = None,
    as_json: common.AsJson = False,
) -> None:
    """Show what each operator of a .pte file costs on the GPU, and what the host costs."""
    from pteron.api.loading import load
    from pteron.api.profiling import profile as profiling
    from pteron.cli.inputs import live_shapes, make_inputs

    prepare_file(trace)
    with (
        steps(f"loading {model.name}") as report,
        load(model, data_path=data, device=device, shapes=parse_bounds(bounds), methods=()) as program,
    ):
        common.check_method(method, program.method_names)
        loaded = program.method(method)
        sizes = live_shapes(loaded, live, shapes or [])
        given = make_inputs(loaded, inputs or [], sizes, "random" if random else "zeros", seed)
        values = [item.value for item in given.values()]
        found = profiling.profile(loaded, values, repeat=repeat, progress=report)
    if trace:
        trace.write_text(json.dumps(profiling.trace(found)), "utf-8")
    if as_json:
        print_json({"file": str(model), **profile_json(found)})
    else:
        show(model.name, found, by, top)
        if trace:
            console().print(Text(f"\n  saved {trace}: open it at ui.perfetto.dev"))


def profile_json(found: Profile) -> dict[str, Any]:
    host = found.host
    return {
        "method": found.method,
        "device": found.adapter,
        "calls": found.calls,
        "timestamps": found.has_timestamps,
        "seconds": {
            "wall": host.wall,
            "cpu": found.cpu_seconds,
            "gpu": found.gpu_seconds,
            "prepare": host.prepare,
            "encode": host.encode,
            "wait_and_read": host.rest,
        },
        "ops": [
            {"op": o.op, "nodes": o.nodes, "dispatches": o.dispatches, "seconds": o.seconds, **_amounts(o)}
            for o in found.by_op()
        ],
        "nodes": [
            {
                "node": n.index,
                "op": n.op,
                "route": n.route,
                "reads": [list(shape) for shape in n.reads],
                "writes": [list(shape) for shape in n.writes],
                "seconds": n.seconds,
                **_amounts(n),
                "kernels": [d.kernel for d in n.dispatches],
            }
            for n in found.nodes
        ],
    }


def _amounts(item: OpProfile | NodeProfile) -> dict[str, int | None]:
    return {"flops": item.cost.flops, "bytes": item.cost.nbytes}


def show(name: str, found: Profile, by: Order | None, top: int) -> None:
    from pteron.api.profiling.profile import by_cost

    out = console()
    out.print(heading(f"{name}: {found.method}", f"on {found.adapter}, medians of {found.calls} calls"))
    out.print(grid(_summary(found)))
    if not found.has_timestamps:
        out.print(
            Text("  this adapter has no timestamp queries: only the times of the host are known", "yellow")
        )
    whole = found.gpu_seconds
    if by != "node":
        ops = found.by_op()
        rows = [(_short(o.op), f"{o.nodes}", *_costs(o, whole)) for o in ops[:top]]
        out.print()
        out.print(grid(rows, header=("operator", "nodes", *_HEADER)))
        _say_rest(out, len(ops) - top, "operator")
    if by != "op":
        nodes: list[NodeProfile] = by_cost(found.nodes)
        rows = [(f"{n.index}", _label(n), *_costs(n, whole), _shapes(n)) for n in nodes[:top]]
        out.print()
        out.print(grid(rows, header=("node", "operator, route", *_HEADER, "live shapes")))
        _say_rest(out, len(nodes) - top, "node")


_HEADER = ("ms", "share", "bytes", "GFLOP/s", "GB/s")


def _summary(found: Profile) -> list[tuple[str, str]]:
    host, gpu = found.host, found.gpu_seconds
    rows = [
        ("call", f"{_ms(host.wall)} ms wall, {_ms(found.cpu_seconds)} ms CPU time of all threads"),
        (
            "host",
            f"{_ms(host.prepare)} ms prepare, {_ms(host.encode)} ms encode, {_ms(host.rest)} ms until read",
        ),
    ]
    if gpu is not None:
        count = sum(len(node.dispatches) for node in found.nodes)
        rows.append(
            ("GPU", f"{_ms(gpu)} ms in {plural(count, 'kernel')} of {plural(len(found.nodes), 'node')}")
        )
    return rows


def _costs(item: NodeProfile | OpProfile, whole: float | None) -> tuple[str, ...]:
    cost, seconds = item.cost, item.seconds
    if not seconds or not whole:
        return ("", "", nbytes(cost.nbytes), "", "")
    rate = f"{cost.flops / seconds / 1e9:.2f}" if cost.flops is not None else ""
    return (
        _ms(seconds),
        f"{100 * seconds / whole:.1f}%",
        nbytes(cost.nbytes),
        rate,
        f"{cost.nbytes / seconds / 1e9:.2f}",
    )


def _short(op: str) -> str:
    return op.removesuffix(".default")


def _label(node: NodeProfile) -> str:
    return _short(node.op) if node.route in ("", "only") else f"{_short(node.op)}, {node.route}"


def _shapes(node: NodeProfile) -> str:
    def text(shapes: tuple[tuple[int, ...], ...]) -> str:
        return " ".join("×".join(map(str, shape)) or "1" for shape in shapes)

    return f"{text(node.reads)} → {text(node.writes)}"


def _say_rest(out: Any, count: int, noun: str) -> None:
    if count > 0:
        out.print(Text(f"  and {plural(count, f'more {noun}')}: see --top", style="dim"))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3f}"
