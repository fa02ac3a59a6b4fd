"""`pteron generate`: generate text for one prompt."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pteron.cli import common, language, sampling_flags
from pteron.cli.language import fetch_model, open_model, show
from pteron.cli.progress import PromptBar, progress_console
from pteron.cli.terminal import print_json

if TYPE_CHECKING:
    from pteron.llm import Stats

INTERRUPTED = 130  # the usual exit code after Ctrl-C

_constraint = partial(typer.Option, rich_help_panel="Form of the answer")


@sampling_flags.takes_sampling_flags
def generate(
    model: language.Model,
    options: dict[str, Any],
    from_hub: language.FromHub = False,
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", help="The text to continue.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Read the prompt from a file; - is standard input.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a chat message: apply the chat template.")
    ] = False,
    schema: Annotated[
        Path | None, _constraint("--schema", help="The answer is JSON of the JSON schema in this file.")
    ] = None,
    regex: Annotated[
        str | None, _constraint("--regex", help="The whole answer matches this regular expression.")
    ] = None,
    grammar: Annotated[
        Path | None, _constraint("--grammar", help="The answer follows the Lark grammar in this file.")
    ] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Continue after an end token.")] = False,
    allow_special: language.AllowSpecial = False,
    context: language.Context = 0,
    kv_dtype: language.KvDtype = "f16",
    precision: language.Precision = "float32",
    ubatch: language.Ubatch = None,
    no_wait: language.NoWait = False,
    policy: sampling_flags.Policy = "stop",
    echo: Annotated[bool, typer.Option("--echo", help="Print the prompt before the answer.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No statistics after the answer.")] = False,
    as_json: common.AsJson = False,
    tokenizer: language.TokenizerPath = None,
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Continue a prompt with a language model. Without -p and -f, the prompt is read from standard input."""
    text = _prompt(prompt, file)
    bar = PromptBar()
    options["context_policy"] = policy
    options["eos_token_id"] = [] if ignore_eos else None
    options["on_prefill"] = bar
    options["schema"] = _schema(schema) if schema else None
    options["regex"] = regex
    options["grammar"] = grammar.read_text(encoding="utf-8") if grammar else None
    with open_model(
        fetch_model(model, from_hub),
        device,
        tokenizer=tokenizer,
        data_path=data,
        context_length=context or None,
        kv_dtype=kv_dtype,
        precision=precision,
        ubatch=ubatch,
        wait=not no_wait,
    ) as llm:
        asked: Any = [{"role": "user", "content": text}] if chat else text
        stream = llm.stream(asked, allow_special=allow_special, **options)
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
    """The prompt. The line break at the end of a file or of `echo` is not part of it."""
    if prompt is not None and file is not None:
        raise typer.BadParameter("-p and -f cannot be used together")
    if prompt is not None:
        return prompt
    if file is None and sys.stdin.isatty():
        raise typer.BadParameter("give a prompt with -p, a file with -f, or text on standard input")
    is_piped = file is None or str(file) == "-"
    text = sys.stdin.read() if is_piped else Path(str(file)).read_text(encoding="utf-8")
    return text.removesuffix("\n")


def _schema(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"--schema {file}: not JSON: {error}") from error


def _as_json(stats: Stats) -> dict[str, Any]:
    return {
        **asdict(stats),
        "prompt_tokens_per_second": stats.prompt_tokens_per_second,
        "generation_tokens_per_second": stats.generation_tokens_per_second,
    }
