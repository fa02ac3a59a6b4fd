"""`pteron generate`: generate text for one prompt."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pteron.cli import common, language
from pteron.cli.language import ModelSource, PromptBar, located, opened, progress_console, show
from pteron.cli.terminal import print_json

if TYPE_CHECKING:
    from pteron.llm import Stats

INTERRUPTED = 130  # the usual exit code after Ctrl-C


def generate(
    model: language.Model,
    from_hub: language.FromHub = False,
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", help="The text to continue.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Read the prompt from a file; - is standard input.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a chat message: apply the chat template.")
    ] = False,
    tokens: language.Tokens = -1,
    temperature: language.Temperature = 0.8,
    top_k: language.TopK = 40,
    top_p: language.TopP = 0.95,
    min_p: language.MinP = 0.05,
    repeat_penalty: language.RepeatPenalty = 1.0,
    seed: language.Seed = -1,
    stop: language.Stop = None,
    ignore_eos: language.IgnoreEnd = False,
    allow_special: language.AllowSpecial = False,
    context: language.Context = 0,
    echo: Annotated[bool, typer.Option("--echo", help="Print the prompt before the answer.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No statistics after the answer.")] = False,
    as_json: common.AsJson = False,
    tokenizer: language.TokenizerPath = None,
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Continue a prompt with a language model."""
    text = _prompt(prompt, file)
    bar = PromptBar()
    given = language.options(tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, stop, ignore_eos)
    given["on_prefill"] = bar
    with opened(ModelSource(located(model, from_hub), tokenizer, data, device, context)) as llm:
        asked: Any = [{"role": "user", "content": text}] if chat else text
        stream = llm.stream(asked, allow_special=allow_special, **given)
        if as_json:
            from pteron.llm.generate import collect

            with language.cancelled_by_interrupt(stream), stream, bar:
                answer = collect(stream)
            print_json({**asdict(answer), "stats": _as_json(answer.stats)})
            reason = answer.finish_reason
        else:
            _, last = show(stream, bar, text if echo else "")
            if not quiet:
                progress_console().print(f"[dim]{last.stats}[/]", soft_wrap=True)
            assert last.finish_reason
            reason = last.finish_reason
    if reason == "cancelled":
        raise typer.Exit(INTERRUPTED)


def _prompt(prompt: str | None, file: Path | None) -> str:
    if (prompt is None) == (file is None):
        raise typer.BadParameter("give a prompt with -p, or a file that contains it with -f")
    if prompt is not None:
        return prompt
    assert file is not None
    return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")


def _as_json(stats: Stats) -> dict[str, Any]:
    return {
        **asdict(stats),
        "prompt_tokens_per_second": stats.prompt_tokens_per_second,
        "generation_tokens_per_second": stats.generation_tokens_per_second,
    }
