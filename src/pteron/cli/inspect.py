"""`pteron inspect`: the contents of a file, and its nodes at a live shape. Only --device needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from pteron.cli import common
from pteron.cli.arguments import parse_bounds, parse_shape, split_name
from pteron.cli.terminal import console, grid, heading, nbytes, plural, print_json, shape

if TYPE_CHECKING:
    from pteron.compiler.pipeline import Target
    from pteron.tools.inspect.inspect import DispatchInfo, MethodInfo, NodeInfo, OperatorCount, PortInfo
    from pteron.tools.inspect.memory_by_bound import BoundedMemory

# The types of inputs and outputs that are no tensors. "bool" may be a tensor too, but then it has a shape.
SCALARS = ("int", "float", "str")


def inspect(
    model: common.Model,
    live: Annotated[
        list[str] | None,
        typer.Option(
            "--live",
            metavar="S|NAME=SHAPE",
            help="Show every node at a live shape: 7 in all dynamic dimensions, or input0=1,7,64.",
        ),
    ] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="Show only this method.")] = None,
    bounds: common.Bounds = None,
    by_bound: Annotated[
        bool, typer.Option("--bounds", help="Show the memory of methods by the bounds of their sizes.")
    ] = False,
    data: common.DataPaths = None,
    device: Annotated[
        str | None,
        typer.Option("--device", "-d", help="Show what runs on this GPU: its index, or a part of its name."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the contents of a .pte file: inputs, operators, constants, memory."""
    from pteron.compiler.pipeline import GraphOptions
    from pteron.tools.inspect.inspect import inspect_methods, open_file
    from pteron.tools.inspect.memory_by_bound import memory_by_bound

    target = _target(device)
    with open_file(model, data or []) as file:
        names = file.method_names
        if method is None and live:
            method = "forward" if "forward" in names else next(iter(names), None)
        if method is not None:
            common.check_method(method, names)
        wanted, size = _parse_live(live or [])
        shown = [method] if method else names
        how: dict[str, Any] = {"options": GraphOptions(shapes=parse_bounds(bounds)), "target": target}
        infos = inspect_methods(file, shown, wanted if live else None, size=size, **how)
        runnable = [info.name for info in infos if info.runs and not info.is_constant]
        memory = {name: memory_by_bound(file, name, **how) for name in runnable if by_bound}
    size_on_disk = model.stat().st_size
    if as_json:
        print_json(
            {
                "file": str(model),
                "nbytes": size_on_disk,
                "methods": [
                    {**method_json(info), "bounds": [asdict(row) for row in memory[info.name]]}
                    if info.name in memory
                    else method_json(info)
                    for info in infos
                ],
            }
        )
        return
    out = console()
    out.print(heading(model.name, f"{nbytes(size_on_disk)}, {plural(len(names), 'method')}"))
    for info in infos:
        if not info.is_constant:
            for part in (*_sections(info), *_bounded(memory.get(info.name, ()))):
                out.print(part)
    settings = [(i.name, ", ".join(str(o.value) for o in i.outputs)) for i in infos if i.is_constant]
    if settings:
        out.print()
        out.print(heading("Methods that only return a constant"))
        out.print(grid(settings))


def _target(device: str | None) -> Target:
    """The kind of device that the program is planned for."""
    from pteron.compiler.pipeline import PORTABLE

    if device is None:
        return PORTABLE
    from pteron.engine.devices.opening import open_device
    from pteron.engine.measured.target import target_of

    opened = open_device(device)
    try:
        return target_of(opened)
    finally:
        opened.close()


def _parse_live(texts: list[str]) -> tuple[dict[str, tuple[int, ...] | int], int | None]:
    shapes: dict[str, tuple[int, ...] | int] = {}
    size: int | None = None
    for text in texts:
        name, value = split_name(text)
        sizes = parse_shape(value)
        if name is not None:
            shapes[name] = sizes
        elif len(sizes) == 1:
            size = sizes[0]
        else:
            raise typer.BadParameter(f"--live {text}: name the input of this shape, such as input0={text}")
    return shapes, size


def method_json(info: MethodInfo) -> dict[str, Any]:
    return {"runs": info.runs, **asdict(info)}


# -- tables ---------------------------------------------------------------------------------------


def _sections(info: MethodInfo) -> Iterator[RenderableType]:
    yield Text()
    yield Text.assemble((info.name, "bold"), ("" if info.runs else "  cannot run", "bold red"))
    yield grid([*map(_input_row, info.inputs), *map(_output_row, info.outputs)])
    if info.guessed:
        yield Text("  ≤ is a guess: the file does not say which sizes may vary", style="dim")
    if info.derived:
        yield Text(f"  sizes of outputs: {info.derived}", style="dim")
    yield from _problems(info)
    yield from _operators(info)
    yield from _constants(info)
    yield from _memory(info)
    yield from _batching(info)
    if info.nodes:
        yield Text()
        yield heading("Nodes at this live shape", "nodes without a kernel are free")
        yield grid(
            [row for node in info.nodes for row in _node_rows(node)],
            header=["#", "operator", "output", "kernel", "grid", "parameters"],
        )


def _input_row(port: PortInfo) -> tuple[str, ...]:
    note = _note(port) if port.values is None else f"values {port.values[0]}..{port.values[1]}"
    return port.name, port.dtype, _port_shape(port), note


def _output_row(port: PortInfo) -> tuple[str, ...]:
    return port.name, port.dtype, _port_shape(port), _note(port)


def _note(port: PortInfo) -> str:
    return port.note if port.value is None else f"always {port.value}"


def _port_shape(port: PortInfo) -> str:
    if port.sizes:
        return f"({', '.join(port.sizes)})".replace("<=", "≤")
    return "" if port.dtype in SCALARS else shape(port.max_shape, port.dynamic_dims)


def _problems(info: MethodInfo) -> Iterator[RenderableType]:
    if info.problems:
        yield Text()
        yield heading("Problems")
        for problem in info.problems:
            yield Text(f"  {problem}", style="red")


def _operators(info: MethodInfo) -> Iterator[RenderableType]:
    for delegate in info.delegates:
        inside = (
            sum(op.count for op in info.operators if op.place == "delegate") if delegate.supported else None
        )
        yield Text()
        note = "" if inside is None else f", {plural(inside, 'operator')}"
        yield heading(
            f"Delegated to {delegate.backend}",
            f"{plural(delegate.calls, 'call')}{note}, {nbytes(delegate.nbytes)}",
        )
        if delegate.supported:
            yield grid([_operator_row(op) for op in info.operators if op.place == "delegate"])
        else:
            yield Text("  opaque: only this backend's own runtime can run it", style="red")
    outside = [op for op in info.operators if op.place == "outside"]
    if outside:
        yield Text()
        yield heading("Outside all delegates", plural(sum(op.count for op in outside), "kernel call"))
        yield grid([_operator_row(op) for op in outside])


def _operator_row(op: OperatorCount) -> tuple[Text, ...]:
    return Text(f"{op.count:>4}×"), Text(op.name), Text("" if op.supported else "unsupported", style="red")


def _constants(info: MethodInfo) -> Iterator[RenderableType]:
    constants = info.constants
    if constants.count:
        yield Text()
        yield heading(
            "Constants", f"{plural(constants.count, 'tensor')}, {nbytes(constants.nbytes)}; the largest:"
        )
        yield grid([(c.name, c.dtype, shape(c.shape), nbytes(c.nbytes)) for c in constants.largest])


def _memory(info: MethodInfo) -> Iterator[RenderableType]:
    memory = info.memory
    if memory is None:
        return
    shared = f"{plural(memory.tensors, 'tensor')} in {plural(memory.buffers, 'buffer')}"
    if memory.unshared > memory.activations:
        shared += f" ({nbytes(memory.unshared)} without sharing)"
    rows = [("activations", nbytes(memory.activations), shared)]
    if memory.state:
        common = f", {nbytes(memory.shared_state)} shared with other methods" if memory.shared_state else ""
        rows.append(("state", nbytes(memory.state), f"kept from call to call{common}"))
    rows.append(("read-back", nbytes(memory.staging), ""))
    yield Text()
    yield heading("Memory", "the same at every live shape")
    yield grid(rows)


def _bounded(rows: Sequence[BoundedMemory]) -> Iterator[RenderableType]:
    """The memory by bound. The first row is for the file's sizes."""
    if rows:
        yield Text()
        yield heading("Memory by bound", "with load(shapes=) or --bound")
        yield grid(
            [
                (
                    str(row).replace("<=", "≤") or "as above",
                    *map(nbytes, (row.memory.activations, row.memory.state, row.memory.staging)),
                )
                for row in rows
            ],
            header=("bound", "activations", "state", "read-back"),
        )


def _batching(info: MethodInfo) -> Iterator[RenderableType]:
    """Whether one call can run several conversations. A method without a state has none."""
    if info.memory is None or not info.memory.state:
        return
    yield Text()
    each = f"yes, with llm.load(parallel=N): {nbytes(info.memory.state if info.memory else 0)} for each"
    yield heading("Several conversations in one call", each if info.batchable else "no")
    if info.mixing:
        yield Text(f"  {info.mixing}")


def _node_rows(node: NodeInfo) -> Iterator[tuple[object, ...]]:
    outputs = ", ".join(shape(v) if isinstance(v, tuple) else f"= {v}" for v in node.outputs.values())
    lead: tuple[object, ...] = (node.index, node.operator, outputs)
    if not node.dispatches:
        yield (*lead, "", "", "")
    for number, dispatch in enumerate(node.dispatches):
        route = "" if node.route == "only" or number else f" [{node.route}]"
        x, y, z = dispatch.grid
        size = f"{x}×{y}×{z}" if z > 1 else f"{x}×{y}" if y > 1 else f"{x}"
        yield (*lead, dispatch.kernel + route, size, Text(_params(dispatch), style="dim"))
        lead = ("", "", "")


def _params(dispatch: DispatchInfo) -> str:
    return " ".join(f"{name}={_number(value)}" for name, value in dispatch.params.items())


def _number(value: float | tuple[int, ...]) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
