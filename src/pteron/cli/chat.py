"""`pteron chat`: a conversation in the terminal."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from pteron.cli import language, options
from pteron.cli.language import PromptBar, Source, opened, show
from pteron.cli.terminal import complain, console

if TYPE_CHECKING:
    from pteron.llm import LanguageModel, Options, Stats

HELP = "/reset forgets the conversation, /stats tells what the last answer cost, /exit leaves"


def chat(
    model: language.Model,
    system: Annotated[
        str | None,
        typer.Option("-sys", "--system-prompt", help="What the model is told before anything else."),
    ] = None,
    tokens: language.Tokens = -1,
    temperature: language.Temperature = 0.8,
    top_k: language.TopK = 40,
    top_p: language.TopP = 0.95,
    min_p: language.MinP = 0.05,
    repeat_penalty: language.RepeatPenalty = 1.0,
    seed: language.Seed = -1,
    stop: language.Stop = None,
    allow_special: language.AllowSpecial = False,
    context: language.Context = 0,
    tokenizer: language.TokenizerPath = None,
    data: options.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Talk with a language model. Ctrl-C stops an answer; /exit or Ctrl-D leaves."""
    given = language.options(tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, stop, False)
    with opened(Source(model, tokenizer, data, device, context)) as llm:
        llm.chat_prompt([{"role": "user", "content": "?"}])  # a model without a template is refused here
        if sys.stdin.isatty():
            with suppress(ImportError):
                import readline  # noqa: F401  arrow keys and history in input()
            console().print(Text(f"{model.name} on {llm.program.device.name}\n{HELP}", style="dim"))
        Conversation(llm, system, given, allow_special).run()


class Conversation:
    """Messages so far, and the session that holds them."""

    def __init__(self, llm: LanguageModel, system: str | None, options: Options, allow_special: bool) -> None:
        self._session = llm.session()
        self._options = options
        self._allow_special = allow_special
        self._beginning = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._beginning)
        self._stats: Stats | None = None

    def run(self) -> None:
        """Until the user leaves. Ctrl-C stops an answer; anywhere else it only clears the line."""
        # A parent that ran in the background hands down an ignored Ctrl-C, which would then do nothing.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        going_on = True
        while going_on:
            try:
                going_on = self._obey(input("> "))
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                console().print(Text("\n/exit or Ctrl-D leaves", style="dim"))

    def _obey(self, line: str) -> bool:
        """Do what a line asks; whether to go on."""
        match line.split():
            case []:
                pass
            case ["/exit" | "/quit" | "/bye"]:
                return False
            case ["/reset" | "/clear"]:
                self._reset()
            case ["/stats"]:
                console().print(Text(str(self._stats or "nothing has been answered yet"), style="dim"))
            case [word, *_] if word.startswith("/"):
                console().print(Text(HELP, style="dim"))
            case _:
                self._answer(line)
        return True

    def _reset(self) -> None:
        self._messages = list(self._beginning)
        self._session.reset()
        console().print(Text("the conversation is forgotten", style="dim"))

    def _answer(self, line: str) -> None:
        """A message that cannot be answered leaves the conversation as it was."""
        from pteron.llm import ContextFull

        messages = [*self._messages, {"role": "user", "content": line}]
        bar = PromptBar()
        options: Options = {**self._options, "on_prefill": bar}
        try:
            stream = self._session.stream(messages, allow_special=self._allow_special, **options)
        except ContextFull as error:
            complain(f"{error}: /reset begins anew")
            return
        text, last = show(stream, bar)
        self._stats = last.stats
        if text:
            self._messages = [*messages, {"role": "assistant", "content": text}]
        if last.finish_reason == "cancelled":
            console().print(Text("(stopped)", style="dim"))
