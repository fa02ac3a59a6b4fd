"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.gpu_model.gpus import name_of
from benchmarks.gpu_model.report import Family, Point, Row, Static


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def kernels(family: str, found: Family) -> str:
    """All compiled kernels, those with spills first."""
    rows = sorted(found.kernels.values(), key=lambda k: (-k.spills - k.scratch, k.kernel))
    body = table(
        ("kernel", "route", "lanes", "registers", "spills", "scratch", "workgroup memory", "waves per SIMD"),
        (_static(kernel) for kernel in rows),
    )
    complaints = "".join(f"\n{key}: {error}\n" for key, error in found.errors.items())
    return f"\n## {name_of(family)} ({family})\n\n{body}{complaints}"


def _static(k: Static) -> tuple[object, ...]:
    occupancy = f"{k.occupancy} of 16" if k.occupancy else ""
    routes = ", ".join(k.routes)
    return k.kernel, routes, k.lanes, k.registers, k.spills, k.scratch, k.workgroup_memory, occupancy


def point(family: str, name: str, found: Point, statics: dict[str, Static]) -> str:
    """The dispatches of a call, the longest first."""
    header = (
        "kernel",
        "route",
        "times",
        "groups",
        "waves/SIMD",
        "registers",
        "spills",
        "fit",
        "instructions",
        "lanes used",
        "µs",
        "bound by",
        "roofline µs",
        "share",
    )
    body = table(header, (_row(row, statics[row.key]) for row in found.rows))
    return f"\n### {name} on {name_of(family)} ({family})\n\n{body}\n{totals(found)}\n"


def _row(r: Row, k: Static) -> tuple[object, ...]:
    begin = (r.kernel, r.route, r.count, r.groups)
    if r.error:
        return (*begin, *[""] * 6, "not emulated", r.error, "", "")
    share = f"{r.roofline / r.microseconds:.0%}" if r.microseconds else ""
    return (
        *begin,
        f"{r.waves_per_simd:.2f}",
        k.registers,
        k.spills + k.scratch,
        f"{k.occupancy} of 16",
        f"{r.instructions:.0f}",
        f"{r.lanes_used:.0%}",
        f"{r.microseconds:.2f}",
        r.bound,
        f"{r.roofline:.2f}",
        share,
    )


def totals(p: Point) -> str:
    return (
        f"{p.dispatches} dispatches: {p.kernels:.0f} µs in kernels, {p.total:.0f} µs with launches at "
        f"{p.launch:.1f} µs. The roofline is {p.roofline:.0f} µs: kernels reach "
        f"{p.roofline / max(p.kernels, 1e-9):.0%} of it, with launches {p.roofline / max(p.total, 1e-9):.0%}."
    )


def changes(family: str, name: str, before: Point, now: Point) -> str:
    """Two versions of Pteron at the same point, operator by operator."""
    old, new = _by_operator(before), _by_operator(now)
    names = sorted(old | new, key=lambda op: -max(old.get(op, _NONE)[1], new.get(op, _NONE)[1]))
    rows = [
        (op, f"{n} → {m}", f"{a:.1f} → {b:.1f}", f"{b / a:.2f}" if a else "")
        for op in names
        for (n, a), (m, b) in [(old.get(op, _NONE), new.get(op, _NONE))]
        if n != m or abs(a - b) >= 0.05
    ]
    rows.append(
        ("all kernels", f"{before.dispatches} → {now.dispatches}", *_change(before.kernels, now.kernels))
    )
    rows.append(("with launches", "", *_change(before.total, now.total)))
    body = table(("operator", "dispatches", "µs", "ratio"), rows)
    return f"\n### {name} on {name_of(family)} ({family}): before → now\n\n{body}"


_NONE = (0, 0.0)


def _change(before: float, now: float) -> tuple[str, str]:
    return f"{before:.0f} → {now:.0f}", f"{now / before:.2f}" if before else ""


def _by_operator(found: Point) -> dict[str, tuple[int, float]]:
    sums: dict[str, tuple[int, float]] = {}
    for row in found.rows:
        count, time = sums.get(row.op, _NONE)
        sums[row.op] = (count + row.count, time + row.total)
    return sums


def lost(before: Family, now: Family) -> str:
    """Kernels that spill or use scratch memory now and did not before."""
    clean = {(k.kernel, route) for k in before.kernels.values() if not _leaks(k) for route in k.routes}
    found = [k for k in now.kernels.values() if _leaks(k) and any((k.kernel, r) in clean for r in k.routes)]
    lines = (
        f"{k.kernel} ({', '.join(k.routes)}): {k.spills} spills, {k.scratch} bytes of scratch" for k in found
    )
    return "".join(f"\nNow leaves its registers: {line}\n" for line in lines)


def _leaks(k: Static) -> bool:
    return bool(k.spills or k.scratch)
