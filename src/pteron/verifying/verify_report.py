"""The result of a verification."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pteron import html
from pteron.ir.values import Shape


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node at one live shape, by one route. `share` is its worst error, relative to the allowed error."""

    index: int
    op: str
    route: str
    kernels: tuple[str, ...]
    reads: tuple[Shape, ...]  # live shapes
    reference: str  # empty: nothing could compute it, and `note` says why
    share: float
    output: int
    element: tuple[int, ...]
    expected: float
    found: float
    note: str = ""
    saved: str = ""  # where the failure was saved

    @property
    def is_bad(self) -> bool:
        return not self.share <= 1

    def __str__(self) -> str:
        shapes = ", ".join(str(list(shape)) for shape in self.reads)
        kernels = " + ".join(self.kernels)
        told = f"node {self.index}, {self.op} of {shapes}, kernel {kernels} (route {self.route})"
        if not self.reference:
            return f"{told}: not verified: {self.note}"
        return (
            f"{told}: output {self.output}, element {list(self.element)}: expected {self.expected:.7g} "
            f"({self.reference}), found {self.found:.7g}: {self.share:.3g} times the allowed error"
        )


@dataclass(frozen=True, slots=True)
class VerifyReport:
    method: str
    adapter: str
    shapes: tuple[dict[str, Any], ...]  # the live shapes of the inputs, one entry per call
    results: tuple[NodeResult, ...]

    @property
    def ok(self) -> bool:
        return self.first_bad is None

    @property
    def bad(self) -> list[NodeResult]:
        return [result for result in self.results if result.is_bad]

    @property
    def first_bad(self) -> NodeResult | None:
        return next(iter(self.bad), None)

    @property
    def unverified(self) -> list[NodeResult]:
        """The nodes that no reference could compute."""
        return [result for result in self.results if not result.reference]

    def worst(self, count: int) -> list[NodeResult]:
        verified = (result for result in self.results if result.reference)
        return sorted(verified, key=lambda result: -result.share)[:count]

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "method": self.method,
            "device": self.adapter,
            "shapes": [{name: list(shape) for name, shape in shapes.items()} for shapes in self.shapes],
            "verified": len(self.results) - len(self.unverified),
            "bad": [asdict(result) for result in self.bad],
            "worst": [asdict(result) for result in self.worst(10)],
            "unverified": [asdict(result) for result in self.unverified],
        }

    def __str__(self) -> str:
        verified = len(self.results) - len(self.unverified)
        place = f"{self.method} on {self.adapter}, at {len(self.shapes)} live shapes"
        if self.first_bad is None:
            return f"All {verified} verified results of {place} are right."
        return f"{len(self.bad)} of {verified} verified results of {place} are wrong. First: {self.first_bad}"

    def _repr_html_(self) -> str:
        rows = (
            (r.index, r.op, " + ".join(r.kernels), r.reference, f"{r.share:.3g}", r.expected, r.found)
            for r in (self.bad or self.worst(5))
        )
        header = ("node", "operator", "kernel", "reference", "error / allowed", "expected", "found")
        return html.section(str(self), html.table(header, rows))
