"""From recorded dispatches to tables: every kernel with its compiler's statistics and its predicted time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.gpu_model.compiler import Compiled, compile_texts
from benchmarks.gpu_model.gpus import GPUS, INTEL, Gpu
from benchmarks.gpu_model.measure import SAMPLES, Measured, measure
from benchmarks.gpu_model.prediction import Waves, predict, roofline
from benchmarks.gpu_model.recorded import Dispatch, Recorded
from benchmarks.gpu_model.tree import Tree


@dataclass(frozen=True)
class Static:
    """What the compiler says about a kernel."""

    kernel: str
    routes: list[str]
    lanes: int
    registers: int
    spills: int
    scratch: int
    workgroup_memory: int
    occupancy: int  # waves that can be kept, in sixteenths of the most. 0: not known for this GPU

    @classmethod
    def of(cls, made: Compiled, kernel: str, routes: list[str]) -> Static:
        return cls(
            kernel,
            routes,
            made.lanes,
            made.registers,
            made.spills,
            made.scratch,
            made.workgroup_memory,
            made.occupancy,
        )


@dataclass(frozen=True)
class Row:
    """Equal dispatches of a point. They differ only in the tensors that they work on."""

    kernel: str
    op: str
    route: str
    key: str
    count: int
    groups: int
    waves_per_simd: float = 0.0
    instructions: float = 0.0  # of an average wave
    lanes_used: float = 0.0  # the share of lanes that are active in vector instructions
    microseconds: float = 0.0  # of one dispatch
    bound: str = ""
    roofline: float = 0.0  # microseconds of one dispatch
    error: str = ""

    @property
    def total(self) -> float:
        return self.count * self.microseconds


@dataclass(frozen=True)
class Point:
    """The dispatches of a call."""

    launch: float  # microseconds that a dispatch costs beside its kernel
    rows: list[Row] = field(default_factory=list)

    @property
    def dispatches(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def kernels(self) -> float:
        return sum(row.total for row in self.rows)

    @property
    def total(self) -> float:
        return self.kernels + self.dispatches * self.launch

    @property
    def roofline(self) -> float:
        return sum(row.count * row.roofline for row in self.rows)


@dataclass(frozen=True)
class Family:
    """A program on one GPU: what the compiler says of each text, its complaints, and the points."""

    kernels: dict[str, Static]
    errors: dict[str, str]
    points: dict[str, Point]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Family:
        points = {
            name: Point(point["launch"], [Row(**row) for row in point["rows"]])
            for name, point in found["points"].items()
        }
        kernels = {key: Static(**static) for key, static in found["kernels"].items()}
        return cls(kernels, found["errors"], points)


def examine(
    recorded: Recorded,
    tree: Tree,
    family: str,
    *,
    checks: str = "project",
    samples: int = SAMPLES,
    wanted: Callable[[Dispatch], bool] = lambda dispatch: True,
    adjust: Callable[[Gpu], Gpu] = lambda gpu: gpu,
) -> Family:
    """Compile all texts for a GPU, and predict the time of the wanted dispatches if its times are known."""
    base = family.partition("@")[0]
    texts = {
        key: text for key, text in recorded.texts.items() if base not in INTEL or not text["many_registers"]
    }
    compiled = compile_texts(tree, texts.values(), family, checks)
    made = {key: one for key in texts if isinstance(one := compiled[key], Compiled)}
    errors = {key: one for key in texts if isinstance(one := compiled[key], str)}
    kernels = {
        key: Static.of(one, recorded.texts[key]["kernel"], recorded.texts[key]["routes"])
        for key, one in made.items()
    }
    gpu = GPUS.get(base)
    if gpu is None:
        return Family(kernels, errors, {})
    gpu = adjust(gpu)
    points = {
        name: Point(gpu.launch * 1e6, rows)
        for name, dispatches in recorded.points.items()
        if (
            rows := _rows(
                gpu, made, recorded, [d for d in dispatches if wanted(d) and d.key in made], samples
            )
        )
    }
    return Family(kernels, errors, points)


def _rows(
    gpu: Gpu, made: dict[str, Compiled], recorded: Recorded, dispatches: list[Dispatch], samples: int
) -> list[Row]:
    groups = _equal(dispatches)
    measured = [
        measure(gpu, made[same[0].key], same[0], recorded.texts[same[0].key], samples) for same in groups
    ]
    main = _main_dispatches(made, groups, measured)
    rows = [
        _row(gpu, made[same[0].key], same, seen, number in main)
        for number, (same, seen) in enumerate(zip(groups, measured, strict=True))
    ]
    return sorted(rows, key=lambda row: -row.total)


def _equal(dispatches: Iterable[Dispatch]) -> list[list[Dispatch]]:
    """Parameters may contain offsets; the operator, the text, the grid and the cost are enough."""
    found: dict[Any, list[Dispatch]] = {}
    for d in dispatches:
        found.setdefault((d.op, d.route, d.key, d.grid, d.nbytes, d.flops), []).append(d)
    return list(found.values())


def _main_dispatches(
    made: dict[str, Compiled], groups: list[list[Dispatch]], measured: list[Measured]
) -> set[int]:
    """Of each node the dispatch that executes the most: the bytes and FLOPs of the node are counted there."""
    most: dict[int, tuple[float, int]] = {}
    for number, (same, seen) in enumerate(zip(groups, measured, strict=True)):
        first = same[0]
        work = seen.counts.get("instructions", 0.0) * first.groups * made[first.key].waves_per_group
        most[first.node] = max(most.get(first.node, (-1.0, -1)), (work, number))
    return {number for _, number in most.values()}


def _row(gpu: Gpu, made: Compiled, same: list[Dispatch], seen: Measured, is_main: bool) -> Row:
    first = same[0]
    common = (first.kernel, first.op, first.route, first.key, len(same), first.groups)
    if seen.error:
        return Row(*common, error=seen.error)
    nbytes, flops = (first.nbytes, first.flops) if is_main else (0, 0)
    waves = Waves(first.groups, made.waves_per_group, made.occupancy, seen.counts, seen.cycles, seen.longest)
    predicted = predict(gpu, waves, nbytes)
    return Row(
        *common,
        waves_per_simd=waves.number / gpu.simds,
        instructions=seen.counts["instructions"],
        lanes_used=seen.counts.get("lanes_active", 0) / max(seen.counts.get("lanes", 0), 1),
        microseconds=predicted.seconds * 1e6,
        bound=predicted.bound,
        roofline=roofline(gpu, nbytes, flops) * 1e6,
    )
