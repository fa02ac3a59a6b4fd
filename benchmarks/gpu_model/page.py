"""Measures all programs, and writes docs/performance.md.

The numbers are kept in `results.json`, so that the page can be written again without measuring.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_model import tables
from benchmarks.gpu_model.gpus import GPUS, name_of
from benchmarks.gpu_model.programs import TITLES
from benchmarks.gpu_model.recorded import record
from benchmarks.gpu_model.report import Row, examine
from benchmarks.gpu_model.tree import HERE, ROOT, commit

RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "performance.md"
FAMILIES = (*GPUS, "tgl", "dg2", "ga102")
# Shapes of `pteron bench --report`: one row, and 128 rows.
CASES = "cases:" + "|".join(
    (": 1 ×", ": 128 ×", ": 16 of", "Convolution", "Attention", "norm", "Softmax", "Reduction", "Elementwise")
)

TEXT = Path(__file__).with_name("page.md")


def make() -> None:
    """Measure all programs, and store the results of each one when it is finished."""
    found: dict[str, Any] = {"commit": commit(), "programs": [], "operators": [], "leaks": []}
    for name, title in TITLES.items():
        print(f"measuring {title}", flush=True)
        _add_program(found, name, title)
        _store(found)
    print("measuring operators", flush=True)
    _add_operators(found)
    _store(found)


def _store(found: dict[str, Any]) -> None:
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    write()


def write() -> None:
    PAGE.write_text(text(json.loads(RESULTS.read_text("utf-8"))), "utf-8")


def _add_program(found: dict[str, Any], name: str, title: str) -> None:
    recorded = record(HERE, name)
    for family in FAMILIES:
        result = examine(recorded, HERE, family)
        for point, total in result.points.items():
            row = {"program": title, "point": point, "family": family, "dispatches": total.dispatches}
            row |= {"kernels": round(total.kernels, 1), "total": round(total.total, 1)}
            found["programs"].append({**row, "roofline": round(total.roofline, 1)})
        found["leaks"] += _leaks(title, family, result.kernels.values())


def _add_operators(found: dict[str, Any]) -> None:
    recorded = record(HERE, CASES)
    for family in FAMILIES:
        result = examine(recorded, HERE, family, samples=1)
        for point, total in result.points.items():
            found["operators"] += [_operator(family, point, row) for row in total.rows]
        found["leaks"] += _leaks("operators", family, result.kernels.values())


def _operator(family: str, point: str, row: Row) -> dict[str, Any]:
    route, _, shape = row.route.partition(", ")
    return {
        "family": family,
        "operator": point,
        "shape": shape,
        "route": route,
        "kernel": row.kernel,
        "microseconds": round(row.microseconds, 2),
        "roofline": round(row.roofline, 2),
        "bound": row.error or row.bound,
    }


def _leaks(program: str, family: str, kernels: Any) -> Iterator[dict[str, Any]]:
    for kernel in kernels:
        if kernel.spills or kernel.scratch:
            named = {"program": program, "family": family, "kernel": kernel.kernel}
            yield {
                **named,
                "route": ", ".join(kernel.routes),
                "spills": kernel.spills,
                "scratch": kernel.scratch,
            }


def text(found: dict[str, Any]) -> str:
    launch = next(iter(GPUS.values())).launch * 1e6
    parts = {"programs": _programs(found), "operators": _operators(found), "leaks": _leak_table(found)}
    parts["commit"] = found["commit"]
    return TEXT.read_text("utf-8").format(launch=launch, **parts)


def _programs(found: dict[str, Any]) -> str:
    header = (
        "program",
        "live point",
        "GPU",
        "dispatches",
        "kernels µs",
        "with launches µs",
        "roofline µs",
        "share",
    )
    rows = [
        (
            row["program"],
            row["point"],
            name_of(row["family"]),
            row["dispatches"],
            f"{row['kernels']:,.0f}",
            f"{row['total']:,.0f}",
            f"{row['roofline']:,.0f}",
            f"{row['roofline'] / row['total']:.0%}",
        )
        for row in found["programs"]
    ]
    measured = {row["program"] for row in found["programs"]}
    left_out = [title for title in TITLES.values() if title not in measured]
    note = f"\nNot measured yet: {'; '.join(left_out)}.\n" if left_out else ""
    return (tables.table(header, rows) + note).strip()


def _operators(found: dict[str, Any]) -> str:
    if not found["operators"]:
        return 'Not measured yet: `make gpu-model ARGS="--program cases:"` prints them.'
    by_shape: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in found["operators"]:
        families = by_shape.setdefault((row["operator"], row["shape"]), {})
        families.setdefault(row["family"], []).append(row)
    header = ("operator", "shape", "route", *(f"{name_of(family)} µs, share, bound by" for family in GPUS))
    rows = []
    for (operator, shape), families in sorted(by_shape.items()):
        route = next(iter(families.values()))[0]["route"]
        rows.append((operator, shape, route, *(_cell(families.get(family, [])) for family in GPUS)))
    return tables.table(header, rows).strip()


def _cell(rows: list[dict[str, Any]]) -> str:
    """All dispatches of an operator together. The longest says what bounds them."""
    time, roofline = (sum(row[key] for row in rows) for key in ("microseconds", "roofline"))
    if not time:
        return ""
    longest = max(rows, key=lambda row: row["microseconds"])
    return f"{time:,.1f}, {roofline / time:.0%}, {longest['bound']}"


def _leak_table(found: dict[str, Any]) -> str:
    if not found["leaks"]:
        return "There are none."
    worst: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in found["leaks"]:
        key = (row["kernel"], row["route"], name_of(row["family"]))
        spills, scratch = worst.get(key, (0, 0))
        worst[key] = max(spills, row["spills"]), max(scratch, row["scratch"])
    rows = [(*key, *numbers) for key, numbers in sorted(worst.items())]
    return tables.table(("kernel", "route", "GPU", "spills", "bytes of scratch"), rows).strip()


if __name__ == "__main__":
    write()
