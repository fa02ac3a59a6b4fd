"""docs/models.md: the results of every model of the zoo in every mode."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path
from statistics import median

from tests.zoo.exporter import MODES
from tests.zoo.results import EQUAL, FROZEN, NOT_EXPORTED, NOT_LOADED, TOO_LONG, Result
from tests.zoo.table import table

PATH = Path(__file__).parents[2] / "docs" / "models.md"

HEAD = """\
# Models

Models of torchvision, torchaudio, timm, transformers and diffusers, and small networks of torch's own layers,
with random weights and mostly in small configurations. Of equal layers in a row, one is kept. Each model is
exported in several ways, loaded by Pteron, run at several live sizes, and compared with torch. The results
are in `tests/zoo/results.jsonl`, with the versions of all packages. `make zoo` adds the missing results and
writes this page.

- **Mode**: *vulkan* is stock ExecuTorch with its `VulkanPartitioner`, *portable* is stock ExecuTorch without
  a partitioner, *pteron* is `pteron.export`. *xnnpack* is stock ExecuTorch with its `XnnpackPartitioner`, and
  *xnnpack int8* the same after its quantizer. *dynamic*: the batch or the length may vary, and the program
  runs at every size in turn, in memory that is filled with NaN before each call.
- **Worst error**: the largest difference from torch, relative to the largest element of the output. For int8,
  the difference from ExecuTorch's own runtime.
- **CPU**: the process CPU of a call, relative to torch's on one thread, on a software adapter. It says how
  far the emulated GPU is from native code, not how fast a real one is. The machine was busy with other work
  while these results were made, and the kernels have changed since: read it as a rough number.
"""

MENDED = """
## What `pteron.export` mends

Stock ExecuTorch refuses these programs. `pteron.export` changes them so that it accepts them:

- **Attention over several sequences, joined by a view** (GPT-2 with two rows). torch.export has traced a
  `view` of the result of attention. ExecuTorch replaces attention by operators whose result has other
  strides, and then the view is impossible: "Cannot view a tensor with shape ... and strides ...". Views
  become reshapes.
- **The static caches of transformers** (`TorchExportableModuleWithStaticCache`). A cache is a buffer of
  the module and also an attribute of a cache object. torch.export finds it through the object and takes
  it for a constant. ExecuTorch then fails because the program writes it: "expected compiled_fn to be
  GraphModule". Constants that are buffers become these buffers.
- **Tensors that are split** (gMLP, GRU). While ExecuTorch checks dtypes, it asks for the length of a
  list of tensors, and by mistake takes that of the first tensor in it. This makes a dynamic size a constant,
  without an error: the file runs at one size only (*frozen size*). Such operators are not checked.
- **Programs that the partitioner refuses** ("Cannot add value for list [s21, 8, 1, 1]", errors in its
  passes): they are written without a delegate. Pteron runs them on the GPU all the same.

Vision transformers with a dynamic batch (ViT, DeiT, those of torchvision and timm) need no mending:
ExecuTorch 1.5.1 exports them with and without its partitioner.
"""


def write(results: list[Result]) -> None:
    PATH.write_text(page(results), "utf-8")


def page(results: list[Result]) -> str:
    ordered = sorted(results, key=_place)
    return "".join([HEAD, summary(ordered), MENDED, *families(ordered), not_exported(ordered)])


def summary(results: list[Result]) -> str:
    modes_tried: dict[str, int] = defaultdict(int)
    for result in results:
        modes_tried[result.model] += 1
    complete = sum(count == len(MODES) for count in modes_tried.values())
    lines = [
        f"\nThe table has {len(table())} models. {len(modes_tried)} have been tried, {complete} of them in "
        "every mode.\n\n| mode | models tried | exported | loaded | equal to torch | median CPU |\n"
        "|---|---|---|---|---|---|\n"
    ]
    lines += [_counts(mode, [r for r in results if r.mode == mode]) for mode in MODES]
    lines.append(_counts("all", results))
    return "".join(lines)


def _counts(mode: str, results: list[Result]) -> str:
    exported = [r for r in results if r.exported]
    loaded = [r for r in exported if r.outcome != NOT_LOADED]
    equal = [r for r in loaded if r.outcome == EQUAL]
    ratios = [r.ratio for r in equal if r.ratio is not None]
    ratio = f"{median(ratios):.1f}" if ratios else "–"
    return f"| {mode} | {len(results)} | {len(exported)} | {len(loaded)} | {len(equal)} | {ratio} |\n"


def families(results: list[Result]) -> list[str]:
    """A table for each library: a line for each model, and a column for each mode."""
    parts = []
    for family, members in groupby(results, lambda r: r.model.partition("/")[0]):
        parts.append(
            f"\n## {family}\n\nEach cell is the worst error and the CPU ratio.\n\n"
            f"| model | {' | '.join(MODES)} |\n|---|{'---|' * len(MODES)}\n"
        )
        parts += [_line(name, list(group)) for name, group in groupby(members, lambda r: r.model)]
    return parts


def _place(result: Result) -> tuple[str, int]:
    return result.model, list(MODES).index(result.mode)


def _line(name: str, results: list[Result]) -> str:
    cells = {r.mode: _outcome(r) for r in results}
    return f"| {name.partition('/')[2]} | {' | '.join(cells.get(mode, '') for mode in MODES)} |\n"


def _outcome(result: Result) -> str:
    if result.outcome == EQUAL:
        return f"{result.worst:.0e}" + ("" if result.ratio is None else f", {result.ratio:.1f}")
    if result.failed:
        return f"**{result.outcome}**: {_cell(result.reason)}"
    return result.outcome


def not_exported(results: list[Result]) -> str:
    """The models that torch.export or ExecuTorch refuses. The same reason is written once."""
    refused = [r for r in results if r.outcome in (NOT_EXPORTED, FROZEN, TOO_LONG)]
    if not refused:
        return ""
    lines = [
        "\n## What the exporter cannot do\n\nThere is no file in these cases, or its dynamic size is a "
        "constant (*frozen size*). The reasons are torch.export's and ExecuTorch's.\n\n"
        "| model | modes | reason |\n|---|---|---|\n"
    ]
    for name, group in groupby(refused, lambda r: r.model):
        by_reason: dict[str, list[str]] = defaultdict(list)
        for result in group:
            by_reason[_cell(result.reason)].append(result.mode)
        lines += [f"| {name} | {', '.join(modes)} | {why} |\n" for why, modes in by_reason.items()]
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "‹").replace(">", "›")[:160]
