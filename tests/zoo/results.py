"""results.jsonl: one line for each model and mode that was tried, sorted. It is part of the repository."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.zoo.exporter import MODES
from tests.zoo.table import table

PATH = Path(__file__).with_name("results.jsonl")

EQUAL = "equal"  # to torch, at every size
WRONG = "wrong"
NOT_LOADED = "not loaded"
NOT_EXPORTED = "not exported"  # by torch.export or ExecuTorch
FROZEN = "frozen size"  # equal to torch, but the exporter made the dynamic size a constant
TOO_LONG = "too long"  # the exporter took more than the time limit

Pair = tuple[str, str]  # a model and a mode


@dataclass(frozen=True)
class Result:
    model: str
    mode: str
    outcome: str
    reason: str = ""  # the error, if the outcome is not `EQUAL`
    worst: float | None = None  # the largest difference from torch, relative to the largest element
    ratio: float | None = None  # process CPU of a call, relative to torch's on one thread
    versions: str = ""

    @property
    def pair(self) -> Pair:
        return self.model, self.mode

    @property
    def exported(self) -> bool:
        return self.outcome in (EQUAL, WRONG, NOT_LOADED)

    @property
    def failed(self) -> bool:
        """Whether Pteron failed. What the exporter cannot do is not a failure of Pteron."""
        return self.outcome in (WRONG, NOT_LOADED)

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def read(path: Path = PATH) -> dict[Pair, Result]:
    """The known results of models that are still in the table."""
    if not path.exists():
        return {}
    results = [Result(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return {r.pair: r for r in results if r.model in table() and r.mode in MODES}


def write(results: Iterable[Result], path: Path = PATH) -> None:
    modes = list(MODES)
    ordered = sorted(results, key=lambda r: (r.model, modes.index(r.mode)))
    lines = [json.dumps(result.record(), ensure_ascii=False) + "\n" for result in ordered]
    unfinished = path.with_suffix(".new")  # an interrupted write leaves the file as it was
    unfinished.write_text("".join(lines), "utf-8")
    unfinished.replace(path)
