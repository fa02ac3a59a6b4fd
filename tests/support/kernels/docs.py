"""Writes docs/kernels.md from the rules and shader texts: `python -m tests.support.kernels.docs`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import fill

from pteron.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, Dispatch, Route, Scratch
from pteron.ir.work import Cost, cost
from pteron.measure.kernel_cases import CASES, KernelCase, case_graph
from pteron.plan.sweep import plan
from tests.support.kernels.gpu_classes import CLASSES, GpuClass
from tests.support.kernels.registers import ALLOWANCE, registers
from tests.support.operators.sample import EveryRoute, texts_of
from tests.support.wgsl import needs

PATH = Path(__file__).parents[3] / "docs" / "kernels.md"
FEATURES = frozenset((GPU, SUBGROUP, HALF))

HEAD = f"""\
# Kernels, by arithmetic

`make docs` generates this page from the rules and the texts of the kernels. A test checks that it is up
to date. The shapes are those of `pteron bench --report FILE`, which measures the same kernels on a real
device: compare its `percent_of_ceiling` with this page.

## How to read the tables

The first table of a family has one line for every kernel of every route:

- **Lanes** is the size of a workgroup, and **memory** is its workgroup memory in bytes. Both are read
  from the text.
- **Registers** per lane are an estimate from the text: the largest number of 32-bit words of names that
  are in scope at one place, with the functions that are called there, and {ALLOWANCE} more for
  addresses. A compiler keeps fewer of the names, and needs more temporaries.
- **Occupancy** is the share of the invocations of a core that the kernel can fill. Registers, workgroup
  memory and the number of workgroups limit it, and lanes that only fill up a hardware thread do not
  count. *spills* means that the registers are too many for the GPU. Routes marked ◦ are for software
  adapters. A GPU uses them only if a measurement says so.

The second table has one line for every shape:

- **FLOPs** are counted for products (a multiply-add is two). **Bytes** count every tensor once, as with
  perfect caches.
- The **ceiling** is what bounds the operator on a GPU, memory or arithmetic, and the time at that
  ceiling.
- **Workgroups** are those of the largest kernel of each route that fits the shape, in the order of
  preference on a GPU. A route with fewer workgroups than a GPU has cores leaves cores idle and cannot
  reach the ceiling there. `+n MB` is memory for partial results, which is written and read in addition.

## The GPUs

| GPU | cores | invocations per core | workgroup memory per core | float32 | memory |
|---|---|---|---|---|---|
"""

IDLE = """
## Where cores stay idle

Here the route that a GPU prefers has fewer workgroups than the GPU has cores, so it cannot reach the
ceiling. Most of these take a few microseconds in any case. If another route has more workgroups,
`pteron tune` can find out whether it is faster.

"""


@dataclass(frozen=True)
class KernelFacts:
    """A kernel of a route, as its text declares it."""

    route: str
    kernel: str
    lanes: int
    workgroup_nbytes: int
    registers: int


@dataclass(frozen=True)
class CaseFacts:
    case: KernelCase
    cost: Cost
    routes: list[Route]  # in the order of preference on a GPU

    @property
    def fitting(self) -> list[Route]:
        return [route for route in self.routes if route.when is not False]

    @property
    def kernels(self) -> Iterator[KernelFacts]:
        for route in self.routes:
            mark = "◦" if route.home == SOFTWARE else ""
            for dispatch, text in zip(route.dispatches, texts_of(route.dispatches), strict=True):
                asked = needs(text)
                yield KernelFacts(
                    route.name + mark,
                    dispatch.kernel,
                    asked.invocations,
                    asked.workgroup_nbytes,
                    registers(text),
                )


def facts(case: KernelCase) -> CaseFacts:
    graph = case_graph(case)
    live = plan(graph, FEATURES, EveryRoute())
    return CaseFacts(case, cost(graph.nodes[0], live.live), live.routes[0])


def page() -> str:
    parts = [HEAD, *map(_describe, CLASSES), "\nSources:\n\n"]
    parts += [fill(f"- {gpu.name}: {gpu.sources}.", 118, subsequent_indent="  ") + "\n" for gpu in CLASSES]
    order = list(dict.fromkeys(case.family for case in CASES))
    found = [facts(case) for case in sorted(CASES, key=lambda case: order.index(case.family))]
    for family, members in groupby(found, lambda each: each.case.family):
        same = list(members)
        parts += [f"\n## {family}\n\n", *_kernel_table(same), "\n", *_work_table(same)]
    return "".join([*parts, IDLE, *_idle(found)])


def _describe(gpu: GpuClass) -> str:
    return _line(
        gpu.name,
        gpu.cores,
        gpu.most_lanes,
        f"{gpu.workgroup_nbytes >> 10} KiB",
        f"{gpu.flops_per_second / 1e12:.1f} TFLOP/s",
        f"{gpu.bytes_per_second / 1e9:.0f} GB/s",
    )


def _kernel_table(found: list[CaseFacts]) -> Iterator[str]:
    yield from _heading("route", "kernel", "lanes", "memory", "registers", *_per_gpu("occupancy"))
    for kernel in dict.fromkeys(kernel for each in found for kernel in each.kernels):
        declared = (kernel.lanes, kernel.workgroup_nbytes, kernel.registers)
        yield _line(
            kernel.route, f"`{kernel.kernel}`", *declared, *(_occupancy(gpu, kernel) for gpu in CLASSES)
        )


def _heading(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield "|---" * len(names) + "|\n"


def _per_gpu(name: str) -> list[str]:
    return [f"{name}, {gpu.name}" for gpu in CLASSES]


def _occupancy(gpu: GpuClass, kernel: KernelFacts) -> str:
    if not gpu.lanes_for(kernel.registers):
        return "spills"
    return f"{gpu.occupancy(kernel.lanes, kernel.registers, kernel.workgroup_nbytes):.0%}".replace("%", " %")


def _work_table(found: list[CaseFacts]) -> Iterator[str]:
    yield from _heading("shape", "FLOPs", "bytes", *_per_gpu("ceiling"), "workgroups")
    for each in sorted(found, key=lambda each: (each.cost.flops or 0, each.cost.nbytes)):
        flops, nbytes = each.cost.flops or 0, each.cost.nbytes
        ceilings = [_ceiling(*gpu.least_seconds(flops, nbytes)) for gpu in CLASSES]
        groups = ", ".join(_workgroups(route) for route in each.fitting)
        yield _line(each.case.name, _short(flops) if flops else "", _short(nbytes), *ceilings, groups)


def _ceiling(seconds: float, kind: str) -> str:
    return f"{kind}, {1e6 * seconds:,.{0 if seconds > 1e-4 else 1}f} µs"


def _workgroups(route: Route) -> str:
    bound = [bound for dispatch in route.dispatches for bound in dispatch.bindings.values()]
    extra = sum(memory.max_nbytes for memory in bound if isinstance(memory, Scratch))
    return f"{route.name} {_most_groups(route):,}" + (f" +{_short(extra)}B" if extra else "")


def _idle(found: list[CaseFacts]) -> Iterator[str]:
    """The shapes whose preferred route has fewer workgroups than a GPU has cores."""
    yield from _heading("shape", "route", "workgroups", "GPUs with more cores")
    for each in found:
        groups = _most_groups(each.fitting[0])
        if larger := [gpu.name for gpu in CLASSES if gpu.cores > groups]:
            yield _line(
                f"{each.case.family}, {each.case.name}", each.fitting[0].name, groups, ", ".join(larger)
            )


def _most_groups(route: Route) -> int:
    return max(_count(dispatch) for dispatch in route.dispatches)


def _count(dispatch: Dispatch) -> int:
    x, y, z = dispatch.grid
    return x * y * z


def _short(number: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} "


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


if __name__ == "__main__":
    PATH.write_text(page(), "utf-8")
