"""docs/models.md: the results of every model of the zoo in every mode."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from statistics import median

from tests.zoo.exporter import MODES
from tests.zoo.table import table
from tests.zoo.trial import Result

PATH = Path(__file__).parents[2] / "docs" / "models.md"

HEAD = """\
# Models

Models of torchvision, timm, transformers and diffusers, with random weights and mostly in small
configurations. Each is exported by stock ExecuTorch 1.5.1 in several ways, loaded by Pteron, run at several
live sizes, and compared with torch. `make zoo` measures all of it and writes this page.

- **Mode**: *vulkan* is ExecuTorch's `VulkanPartitioner`, *portable* is no partitioner, *pteron* is
  `pteron.export`. *dynamic*: the batch or the length may vary, and is run at every size in turn.
- **Worst error**: the largest difference from torch, relative to the largest element of the output.
- **CPU**: the process CPU of a call, relative to torch's on one thread, on a software adapter. It says how
  far the emulated GPU is from native code, not how fast a real one is.
"""


def page(results: list[Result]) -> str:
    return "".join([HEAD, summary(results), *families(results), not_exported(results)])


def summary(results: list[Result]) -> str:
    tried = len({result.model for result in results})
    lines = [f"\n{tried} of the {len(table())} models in the table have been tried, not all in every mode.\n"]
    lines += ["\n| mode | models | exported | load | right | median CPU |\n|---|---|---|---|---|---|\n"]
    for mode in MODES:
        here = [r for r in results if r.mode == mode]
        if not here:
            continue
        exported = [r for r in here if r.exported is True]
        ratios = [r.ratio for r in exported if r.ratio is not None]
        counts = (
            len(here),
            len(exported),
            sum(r.loaded is True for r in here),
            sum(r.right is True for r in here),
        )
        ratio = f"{median(ratios):.1f}" if ratios else "–"
        lines.append(f"| {mode} | {' | '.join(map(str, counts))} | {ratio} |\n")
    return "".join(lines)


def families(results: list[Result]) -> list[str]:
    """A table for each library, with all exported models."""
    parts = []
    exported = sorted((r for r in results if r.exported is True), key=_place)
    for family, members in groupby(exported, lambda r: r.model.partition("/")[0]):
        parts.append(
            f"\n## {family}\n\n| model | mode | loads | worst error | CPU |\n|---|---|---|---|---|\n"
        )
        parts += [_line(result) for result in members]
    return parts


def _place(result: Result) -> tuple[str, int]:
    return result.model, list(MODES).index(result.mode)


def _line(result: Result) -> str:
    error = "–" if result.worst is None else f"{result.worst:.0e}"
    ratio = "–" if result.ratio is None else f"{result.ratio:.1f}"
    name = result.model.partition("/")[2]
    state = "yes" if result.failure is None else _cell(result.failure)
    return f"| {name} | {result.mode} | {state} | {error} | {ratio} |\n"


def not_exported(results: list[Result]) -> str:
    """The models that ExecuTorch or torch.export refuses: there is no file to load."""
    refused = sorted((r for r in results if isinstance(r.exported, str)), key=_place)
    if not refused:
        return ""
    lines = [
        "\n## What the exporter cannot do\n\nThere is no file in these cases. The reasons are torch.export's "
        "and ExecuTorch's.\n\n| model | mode | reason |\n|---|---|---|\n"
    ]
    for result in refused:
        lines.append(f"| {result.model} | {result.mode} | {_cell(str(result.exported))} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "‹").replace(">", "›")[:160]
