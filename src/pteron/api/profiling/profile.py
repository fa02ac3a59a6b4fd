"""Where the time of a call goes: per node and per operator on the GPU, and on the host."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

from pteron._util import html
from pteron._util.progress import Progress
from pteron.api.method import Method
from pteron.compiler.ir.values import Shape
from pteron.compiler.ir.work import Cost
from pteron.engine.devices.device import Span
from pteron.engine.steps import KernelDispatch, Step


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds of a normal call, measured in the calling thread.

    Attributes:
        prepare: Reading the inputs, planning, uploading.
        encode: Recording and submitting the kernels.
        rest: Waiting for the GPU, reading back.
    """

    prepare: float
    encode: float
    rest: float

    @property
    def wall(self) -> float:
        """The time of the whole call."""
        return self.prepare + self.encode + self.rest


@dataclass(frozen=True, slots=True)
class DispatchProfile:
    kernel: str
    grid: tuple[int, int, int]
    seconds: float | None  # the median of the profiled calls; None without timestamps
    last: tuple[float, float] | None  # start and end in the last call, from the start of its first dispatch


@dataclass(frozen=True, slots=True)
class NodeProfile:
    index: int
    op: str
    route: str
    reads: tuple[Shape, ...]  # live shapes
    writes: tuple[Shape, ...]
    cost: Cost
    dispatches: tuple[DispatchProfile, ...]

    @property
    def seconds(self) -> float | None:
        return total(d.seconds for d in self.dispatches)


@dataclass(frozen=True, slots=True)
class OpProfile:
    """The sum of all nodes of one operator."""

    op: str
    nodes: int
    dispatches: int
    cost: Cost
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a call goes.

    Attributes:
        method: The name of the method.
        adapter: The GPU.
        calls: The number of measured calls.
        host: Medians of normal calls, on the host.
        cpu_seconds: CPU time of such a call, in all threads of the process.
        nodes: The nodes that run kernels, in program order.
        timeline: The phases of one call. None if the GPU has no timestamps.
    """

    method: str
    adapter: str
    calls: int
    host: Host
    cpu_seconds: float
    nodes: tuple[NodeProfile, ...]
    timeline: Timeline | None

    @property
    def has_timestamps(self) -> bool:
        """Whether the GPU can measure the time of a kernel."""
        return self.timeline is not None

    @property
    def gpu_seconds(self) -> float | None:
        """The sum over all kernels, without the gaps between them."""
        return total(node.seconds for node in self.nodes) if self.has_timestamps else None

    def by_op(self) -> list[OpProfile]:
        """The operators, the most expensive first."""
        groups: dict[str, list[NodeProfile]] = defaultdict(list)
        for node in self.nodes:
            groups[node.op].append(node)
        return by_cost(_summary(op, nodes) for op, nodes in groups.items())

    def _repr_html_(self) -> str:
        times = {
            "a call": html.milliseconds(self.host.wall),
            "of this on the host": html.milliseconds(self.host.prepare + self.host.encode),
            "all kernels": html.milliseconds(self.gpu_seconds) or "not measured: the GPU has no timestamps",
        }
        rows = ((o.op, o.nodes, o.dispatches, html.milliseconds(o.seconds)) for o in self.by_op())
        return html.section(
            f"Profile of {self.method} on {self.adapter}",
            html.facts(times),
            html.table(("operator", "nodes", "dispatches", "time"), rows),
        )


@dataclass(frozen=True, slots=True)
class Timeline:
    """The phases of one profiled call on the host, in seconds since its start."""

    recording: float
    recorded: float
    done: float


def profile(
    method: Method,
    inputs: Sequence[Any],
    *,
    repeat: int = 5,
    progress: Progress | None = None,
) -> Profile:
    """Measure where the time of a call goes.

    The method is called several times normally, and then several times with a timestamp around every kernel.

    Args:
        method: The method to call.
        inputs: Its inputs.
        repeat: The number of calls of each kind.
        progress: A function that is called between calls, with what is being done, the number of calls done,
            and of all calls.

    Returns:
        Times on the host, and the time of each node on the GPU, if the GPU has timestamps.

    Example:
        ```python
        profile = pteron.profile(program.method("forward"), [x])
        for op in profile.by_op():
            print(op.op, op.seconds)
        ```
    """
    tell = progress or (lambda *_: None)
    device = method.device
    with device.lock:
        method.reset()
        method.execute(inputs)  # the first call at a shape plans; later calls do not
        plain = []
        for number in range(repeat):
            tell("profiling", number, 2 * repeat)
            plain.append(_ordinary(method, inputs))
        spans: list[list[Span]] = []
        timeline = None
        if device.timer is not None:
            with device.timer() as watch:
                _time(method, inputs)  # the first call creates the queries
                for number in range(repeat):
                    tell("profiling", repeat + number, 2 * repeat)
                    timeline = _time(method, inputs)
                    spans.append(watch.read())
        with method.prepare(*inputs) as call:
            nodes = tuple(node_profiles(call.steps(), spans))
        return Profile(
            method.name,
            device.name,
            repeat,
            Host(*(median(getattr(h, part) for h, _ in plain) for part in ("prepare", "encode", "rest"))),
            median(cpu for _, cpu in plain),
            nodes,
            timeline,
        )


def by_cost(profiles: Iterable[Any]) -> list[Any]:
    return sorted(profiles, key=lambda p: -(p.seconds or 0.0))


def total(seconds: Iterable[float | None]) -> float | None:
    known = list(seconds)
    return None if None in known else sum(s for s in known if s is not None)


def _ordinary(method: Method, inputs: Sequence[Any]) -> tuple[Host, float]:
    cpu = time.process_time()
    seen = _time(method, inputs)
    cpu = time.process_time() - cpu
    return Host(seen.recording, seen.recorded - seen.recording, seen.done - seen.recorded), cpu


def _time(method: Method, inputs: Sequence[Any]) -> Timeline:
    """The steps of `Method.execute`, one by one."""
    begin = time.perf_counter()
    with method.prepare(*inputs) as call:
        recording = time.perf_counter()
        pending = call.submit()
        recorded = time.perf_counter()
        pending.result()
        done = time.perf_counter()
    return Timeline(recording - begin, recorded - begin, done - begin)


def node_profiles(steps: Iterable[Step], calls: list[list[Span]]) -> Iterable[NodeProfile]:
    """The nodes with dispatches. `calls`: the spans of each timed call; they may be none."""
    origin = calls[-1][0].begin if calls and calls[-1] else 0.0
    numbers = count()

    def timed(dispatch: KernelDispatch) -> DispatchProfile:
        number = next(numbers)
        if not calls:
            return DispatchProfile(dispatch.kernel, dispatch.grid, None, None)
        seconds = median(spans[number].end - spans[number].begin for spans in calls) / 1e9
        last = calls[-1][number]
        span = (last.begin - origin) / 1e9, (last.end - origin) / 1e9
        return DispatchProfile(dispatch.kernel, dispatch.grid, seconds, span)

    for step in steps:
        if step.dispatches:
            dispatches = tuple(map(timed, step.dispatches))
            node, route = step.node, step.route
            yield NodeProfile(node.index, node.name, route, step.reads, step.writes, step.cost, dispatches)


def _summary(op: str, nodes: Sequence[NodeProfile]) -> OpProfile:
    counted = [n.cost.flops for n in nodes if n.cost.flops is not None]
    return OpProfile(
        op,
        len(nodes),
        sum(len(n.dispatches) for n in nodes),
        Cost(sum(counted) if counted else None, sum(n.cost.nbytes for n in nodes)),
        total(n.seconds for n in nodes),
    )


# -- a trace for chrome://tracing and ui.perfetto.dev ----------------------------------------------

HOST, GPU = 1, 2


def trace(profile: Profile) -> dict[str, Any]:
    """One profiled call in the Trace Event Format: the host's phases above, the kernels below.

    The two clocks have no common origin: the first kernel is drawn where the host recorded it.
    """
    seen = profile.timeline
    host = profile.host
    if seen is None:
        seen = Timeline(host.prepare, host.prepare + host.encode, host.wall)
    events = [
        _name("process_name", 0, f"pteron: {profile.method} on {profile.adapter}"),
        _name("thread_name", HOST, "host"),
        _name("thread_name", GPU, "GPU"),
        _slice("prepare", HOST, 0, seen.recording, {}),
        _slice("encode", HOST, seen.recording, seen.recorded - seen.recording, {}),
        _slice("wait and read back", HOST, seen.recorded, seen.done - seen.recorded, {}),
    ]
    for node in profile.nodes:
        for dispatch in node.dispatches:
            if dispatch.last is None:
                continue
            begin, end = dispatch.last
            details = {
                "node": node.index,
                "route": node.route,
                "kernel": dispatch.kernel,
                "grid": list(dispatch.grid),
                "reads": [list(shape) for shape in node.reads],
                "writes": [list(shape) for shape in node.writes],
            }
            events.append(_slice(node.op, GPU, seen.recorded + begin, end - begin, details))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def _slice(name: str, thread: int, begin: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "ts": 1e6 * begin,
        "dur": 1e6 * seconds,
        "args": args,
    }
