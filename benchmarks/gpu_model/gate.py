"""Kernels must not become slower, or leave their registers, unnoticed. `make test` compares them with a file.

make gpu-baseline       writes the file again, after a change that is meant
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_model.recorded import Recorded, record
from benchmarks.gpu_model.report import Family, Static, examine
from benchmarks.gpu_model.tree import HERE, Tree

BASELINE = Path(__file__).with_name("baseline.json")
FAMILIES = ("navi31", "navi21", "tgl")
CASES = (
    "Linear, float32 weights: 128 ×",
    "Linear, float16 weights: 128 ×",
    "Linear, int8 weights and activations: 128 ×",
    "Linear, 4-bit symmetric weights: 1 ×",
    "Convolution: 3×3, 64",
    "Convolution: 1×1",
    "one filter per channel",
    "Attention with a KV cache: 1 after",
    "Softmax",
    "Layer norm",
)
ROUNDED_CASE = "Linear, 4-bit with minima weights: 128 ×"
TOLERANCE = 1.05
FLOOR = 4  # waves that a SIMD of AMD should be able to keep, of 16


def recorded(tree: Tree = HERE) -> Recorded:
    """The kernels that decide how fast language models and images are."""
    found = record(tree, "smollm2").merged(record(tree, f"cases:{'|'.join(CASES)}"))
    for precision in ("float16", "int8"):
        found = found.merged(record(tree, f"cases:{ROUNDED_CASE}", ["--precision", precision]))
    return found


def measured(found: Recorded, family: str) -> dict[str, Any]:
    """What the file has of one GPU."""
    result = examine(found, HERE, family, samples=1)
    exceptions = {name: kernel for name, kernel in sorted(_worst(result).items()) if _complaints(kernel)}
    return {"microseconds": _times(result), "exceptions": exceptions}


def _times(found: Family) -> dict[str, float]:
    """By point and operator."""
    sums: dict[str, float] = defaultdict(float)
    for name, point in found.points.items():
        for row in point.rows:
            sums[f"{name}: {row.op}"] += row.total
    return {name: round(time, 2) for name, time in sorted(sums.items())}


def worst_of(found: Recorded, family: str) -> dict[str, dict[str, int]]:
    """What the compiler says at worst, by kernel and route."""
    return _worst(examine(found, HERE, family, samples=1))


def _worst(found: Family) -> dict[str, dict[str, int]]:
    """By kernel and route: the most spills and scratch memory, and the lowest occupancy of all its texts."""
    worst: dict[str, dict[str, int]] = {}
    for kernel in found.kernels.values():
        for route in kernel.routes:
            known = worst.get(f"{kernel.kernel} ({route})")
            worst[f"{kernel.kernel} ({route})"] = _merged(known, kernel)
    return worst


def _merged(known: dict[str, int] | None, kernel: Static) -> dict[str, int]:
    own = {"spills": kernel.spills, "scratch": kernel.scratch}
    if kernel.occupancy:
        own["occupancy"] = kernel.occupancy
    if known is None:
        return own
    return {
        name: min(known[name], own[name]) if name == "occupancy" else max(known[name], own[name])
        for name in own
    }


def _complaints(kernel: dict[str, int], allowed: dict[str, int] | None = None) -> list[str]:
    """What is worse than it may be."""
    limit = {"spills": 0, "scratch": 0, "occupancy": FLOOR, **(allowed or {})}
    found = [
        f"{kernel[name]} {name}, not {limit[name]}"
        for name in ("spills", "scratch")
        if kernel[name] > limit[name]
    ]
    if kernel.get("occupancy", FLOOR) < limit["occupancy"]:
        found.append(f"only {kernel['occupancy']} waves fit a SIMD, not {limit['occupancy']}")
    return found


def findings(family: str, found: Recorded, baseline: dict[str, Any]) -> Iterator[str]:
    """What has become worse, in sentences."""
    result, stored = examine(found, HERE, family, samples=1), baseline[family]
    for name, error in result.errors.items():
        yield f"{family}: {found.texts[name]['kernel']} does not compile: {error}"
    for name, kernel in _worst(result).items():
        for complaint in _complaints(kernel, stored["exceptions"].get(name)):
            yield f"{family}: {name} has {complaint}"
    for point in result.points.values():
        for row in point.rows:
            if row.error:
                yield f"{family}: not emulated: {row.kernel} ({row.route}): {row.error}"
    for name, now in _times(result).items():
        before = stored["microseconds"].get(name)
        if before is not None and now > TOLERANCE * before:
            yield f"{family}: {name} takes {now} µs, not {before}"


def read() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(BASELINE.read_text("utf-8"))
    return stored


def main() -> None:
    found = recorded()
    made = {family: measured(found, family) for family in FAMILIES}
    before = read() if BASELINE.exists() else {}
    BASELINE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for family, now in made.items():
        old = before.get(family, {}).get("microseconds", {})
        for name, time in now["microseconds"].items():
            if name not in old or abs(time / max(old[name], 0.01) - 1) > TOLERANCE - 1:
                print(f"{family}: {name}: {old.get(name, 'new')} → {time} µs")


if __name__ == "__main__":
    main()
