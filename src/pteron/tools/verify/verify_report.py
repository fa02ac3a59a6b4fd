"""The result of a verification."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from pteron._util import html
from pteron.compiler.ir.values import Shape


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The result of one node at one live shape, by one route.

    Attributes:
        index: The number of the node.
        op: The operator.
        route: The name of the route.
        kernels: The kernels of the route.
        reads: The live shapes of its inputs.
        reference: What computed the expected values. Empty if nothing could; `note` then says why.
        share: The largest error, relative to the allowed error. Above 1, the node is wrong.
        output: The number of the output with the largest error.
        element: The element with the largest error.
        expected: Its expected value.
        found: Its value on this device.
        note: Why the node was not verified.
        saved: Where the failure was saved.
        method: The name of the method.
    """

    index: int
    op: str
    route: str
    kernels: tuple[str, ...]
    reads: tuple[Shape, ...]
    reference: str
    share: float
    output: int
    element: tuple[int, ...]
    expected: float
    found: float
    note: str = ""
    saved: str = ""
    method: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether the error is larger than allowed, or is NaN."""
        return not self.share <= 1

    def __str__(self) -> str:
        shapes = ", ".join(str(list(shape)) for shape in self.reads)
        told = f"{self.op} of {shapes}"  # a whole method has no kernel
        if self.kernels:
            kernels = " + ".join(self.kernels)
            told = f"node {self.index}, {told}, kernel {kernels} (route {self.route})"
        if not self.reference:
            return f"{told}: not verified: {self.note}"
        return (
            f"{told}: output {self.output}, element {list(self.element)}: expected {self.expected:.7g} "
            f"({self.reference}), found {self.found:.7g}: {self.share:.3g} times the allowed error"
        )


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The results of a verification. It is true if none is wrong. `print(report)` shows a summary.

    Attributes:
        methods: The names of the methods.
        adapter: The GPU.
        shapes: The live shapes of the inputs, one entry per call.
        results: All results, in program order. Those of whole methods come last.
        notes: What was not compared, and why.
    """

    methods: tuple[str, ...]
    adapter: str
    shapes: tuple[dict[str, Any], ...]
    results: tuple[NodeResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every verified result is right."""
        return self.first_bad is None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def bad(self) -> list[NodeResult]:
        """The wrong results."""
        return [result for result in self.results if result.is_bad]

    @property
    def first_bad(self) -> NodeResult | None:
        """The first wrong result in program order: the place where the error arises."""
        return next(iter(self.bad), None)

    @property
    def unverified(self) -> list[NodeResult]:
        """The nodes that no reference could compute."""
        return [result for result in self.results if not result.reference]

    @property
    def references(self) -> dict[str, int]:
        """What computed the expected values, and how many results of it were compared."""
        return dict(Counter(result.reference for result in self.results if result.reference).most_common())

    def worst(self, count: int) -> list[NodeResult]:
        """The results with the largest errors, relative to the allowed error."""
        verified = (result for result in self.results if result.reference)
        return sorted(verified, key=lambda result: -result.share)[:count]

    def as_json(self) -> dict[str, Any]:
        """The report as `pteron verify --json` prints it."""
        return {
            "ok": self.ok,
            "methods": list(self.methods),
            "device": self.adapter,
            "shapes": [{name: list(shape) for name, shape in shapes.items()} for shapes in self.shapes],
            "verified": len(self.results) - len(self.unverified),
            "references": self.references,
            "notes": list(self.notes),
            "bad": [asdict(result) for result in self.bad],
            "worst": [asdict(result) for result in self.worst(10)],
            "unverified": [asdict(result) for result in self.unverified],
        }

    def __str__(self) -> str:
        verified = len(self.results) - len(self.unverified)
        place = f"{', '.join(self.methods)} on {self.adapter}, at {len(self.shapes)} live shapes"
        if self.first_bad is None:
            told = f"All {verified} verified results of {place} are right."
        else:
            wrong = f"{len(self.bad)} of {verified} verified results"
            told = f"{wrong} of {place} are wrong. First: {self.first_bad}"
        compared = ", ".join(f"{count} with {name}" for name, count in self.references.items())
        return "\n".join([told, *([f"Compared: {compared}."] if compared else []), *self.notes])

    def _repr_html_(self) -> str:
        rows = (
            (r.index, r.op, " + ".join(r.kernels), r.reference, f"{r.share:.3g}", r.expected, r.found)
            for r in (self.bad or self.worst(5))
        )
        header = ("node", "operator", "kernel", "reference", "error / allowed", "expected", "found")
        return html.section(str(self), html.table(header, rows))
