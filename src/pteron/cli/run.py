"""`pteron run`: run a program at a live shape, and show its outputs and the cost of the call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pteron._util.progress import Progress
from pteron.cli import common
from pteron.cli.arguments import parse_bounds
from pteron.cli.output_places import prepare_file, prepare_folder
from pteron.cli.progress import steps
from pteron.cli.terminal import console, grid, heading, plural, print_json, shape

if TYPE_CHECKING:
    from pteron.api.method import Method
    from pteron.cli.inputs import Given


def run(
    model: common.Model,
    inputs: common.Inputs = None,
    shapes: common.Shapes = None,
    live: common.LiveSize = None,
    random: common.Random = False,
    ones: Annotated[bool, typer.Option("--ones", help="Use ones as inputs instead of zeros.")] = False,
    seed: common.Seed = 0,
    method: common.MethodName = "forward",
    bounds: common.Bounds = None,
    data: common.DataPaths = None,
    device: common.DeviceName = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Save the outputs: a .npy or .npz file, or a folder."),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", "-n", min=1, help="Number of calls to time.")] = 1,
    as_json: common.AsJson = False,
) -> None:
    """Run a .pte file."""
    if random and ones:
        raise typer.BadParameter("--random and --ones cannot be used together")
    (prepare_file if _is_file(output) else prepare_folder)(output)
    fill = "random" if random else "ones" if ones else "zeros"
    from pteron.api.loading import load
    from pteron.cli.inputs import live_shapes, make_inputs

    begin = time.perf_counter()
    with (
        steps(f"loading {model.name}") as report,
        load(model, data_path=data, device=device, shapes=parse_bounds(bounds), methods=()) as program,
    ):
        common.check_method(method, program.method_names)
        loaded = program.method(method)
        load_seconds = time.perf_counter() - begin
        if output is not None and output.suffix == ".npy" and len(loaded.outputs) != 1:
            raise typer.BadParameter(
                f"{output} stores one array, but there are {len(loaded.outputs)} outputs: use a .npz file"
            )
        sizes = live_shapes(loaded, live, shapes or [])
        given = make_inputs(loaded, inputs or [], sizes, fill, seed)
        result = _call(loaded, given, repeat, report)
        result.load_seconds = load_seconds
        result.adapter = program.device.name
    saved = _save(result.outputs, output) if output else []
    if as_json:
        print_json(_as_json(model, method, given, result, saved))
    else:
        _show(model, method, given, result, saved)


@dataclass(slots=True)
class RunResult:
    outputs: dict[str, Any]
    seconds: list[float]
    allocations: int  # since load
    compilations: int
    load_seconds: float = 0.0
    adapter: str = ""


def _call(method: Method, given: Mapping[str, Given], repeat: int, progress: Progress) -> RunResult:
    device = method.device
    before = device.allocations, device.compilations
    values = [item.value for item in given.values()]
    seconds = []
    outputs: list[Any] = []
    for number in range(repeat):
        progress("calling", number, repeat)
        method.reset()  # every call of a program with state starts from the same state
        begin = time.perf_counter()
        outputs = method.execute(values)
        seconds.append(time.perf_counter() - begin)
    names = [info.name for info in method.outputs]
    return RunResult(
        dict(zip(names, outputs, strict=True)),
        seconds,
        device.allocations - before[0],
        device.compilations - before[1],
    )


def _is_file(output: Path | None) -> bool:
    return output is not None and output.suffix in (".npy", ".npz")


def _save(outputs: Mapping[str, Any], where: Path) -> list[Path]:
    import numpy as np

    if where.suffix == ".npz":
        np.savez(where, **outputs)
        return [where]
    if where.suffix == ".npy":
        np.save(where, *outputs.values())
        return [where]
    paths = [where / f"{name}.npy" for name in outputs]
    for path, value in zip(paths, outputs.values(), strict=True):
        np.save(path, value)
    return paths


def _describe(value: Any) -> dict[str, Any]:
    """Statistics of an array. Values that are not finite are counted separately, not in the mean."""
    import numpy as np

    array = np.asarray(value)
    facts: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind not in "biuf":
        return facts | {"value": str(value)}
    finite = array[np.isfinite(array)].astype(np.float64)
    summary = {"min": finite.min(), "max": finite.max(), "mean": finite.mean()} if finite.size else {}
    facts |= {key: float(summary[key]) if key in summary else None for key in ("min", "max", "mean")}
    facts["not_finite"] = int(array.size - finite.size)
    return facts


def _as_json(
    model: Path, method: str, given: Mapping[str, Given], result: RunResult, saved: list[Path]
) -> Any:
    return {
        "file": str(model),
        "method": method,
        "device": result.adapter,
        "inputs": [{"name": n, "source": g.source, **_describe(g.value)} for n, g in given.items()],
        "outputs": [{"name": n, **_describe(v)} for n, v in result.outputs.items()],
        "load_seconds": result.load_seconds,
        "seconds": result.seconds,
        "allocations_since_load": result.allocations,
        "compilations_since_load": result.compilations,
        "saved": [str(path) for path in saved],
    }


def _show(model: Path, method: str, given: Mapping[str, Given], result: RunResult, saved: list[Path]) -> None:
    out = console()
    out.print(heading(f"{model.name}: {method}", f"on {result.adapter}"))
    rows: list[tuple[object, ...]] = [
        (name, *_columns(item.value), item.source) for name, item in given.items()
    ]
    rows += [(name, *_columns(value), _summary(value)) for name, value in result.outputs.items()]
    out.print(grid(rows))
    out.print()
    since_load = f"{plural(result.allocations, 'allocation')}, {plural(result.compilations, 'compilation')}"
    costs = {"load": _time(result.load_seconds), "call": _times(result.seconds), "since load": since_load}
    out.print(grid(list(costs.items())))
    for path in saved:
        out.print(Text(f"  saved {path}"))


def _columns(value: Any) -> tuple[str, str]:
    if hasattr(value, "shape"):
        return value.dtype.name, shape(value.shape)
    return type(value).__name__, ""


def _summary(value: Any) -> Text:
    if not getattr(value, "shape", None):
        return Text(f"{value}")
    facts = _describe(value)
    numbers = [f"{key} {facts[key]:.6g}" for key in ("min", "max", "mean") if facts.get(key) is not None]
    text = Text("  ".join(numbers) or "empty")
    if facts["not_finite"]:
        text.append(f"  {facts['not_finite']} of {value.size} not finite", style="red")
    return text


def _times(seconds: list[float]) -> str:
    if len(seconds) == 1:
        return _time(seconds[0])
    mean = sum(seconds) / len(seconds)
    return f"best {_time(min(seconds))}, mean {_time(mean)}, first {_time(seconds[0])} of {len(seconds)}"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.2f} ms"
