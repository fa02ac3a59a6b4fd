"""`pteron chat`: a conversation in the terminal."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from pteron.cli import common, language
from pteron.cli.language import ModelSource, PromptBar, located, opened, show
from pteron.cli.terminal import complain, console

if TYPE_CHECKING:
    from pteron.llm import LanguageModel, Options, Stats

HELP = "/reset starts a new conversation, /stats shows the cost of the last answer, /exit quits"


def chat(
    model: language.Model,
    from_hub: language.FromHub = False,
    system: Annotated[
        str | None,
        typer.Option("-sys", "--system-prompt", help="The instructions before the conversation."),
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
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Chat with a language model. Ctrl-C stops an answer; /exit or Ctrl-D quits."""
    given = language.options(tokens, temperature, top_k, top_p, min_p, repeat_penalty, seed, stop, False)
    with opened(ModelSource(located(model, from_hub), tokenizer, data, device, context)) as llm:
        llm.chat_prompt([{"role": "user", "content": "?"}])  # a model without a template is refused here
        if sys.stdin.isatty():
            with suppress(ImportError):
                import readline  # noqa: F401  arrow keys and history in input()
            console().print(Text(f"{model.name} on {llm.program.device.name}\n{HELP}", style="dim"))
        Conversation(llm, system, given, allow_special).run()


class Conversation:
    """The messages so far, and the session with their KV cache."""

    def __init__(self, llm: LanguageModel, system: str | None, options: Options, allow_special: bool) -> None:
        self._session = llm.session()
        self._options = options
        self._allow_special = allow_special
        self._beginning = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._beginning)
        self._stats: Stats | None = None

    def run(self) -> None:
        """Read lines until the user quits. Ctrl-C stops an answer; at the prompt it clears the line."""
        # A parent process in the background makes its children ignore Ctrl-C. Undo this.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        continues = True
        while continues:
            try:
                continues = self._execute(input("> "))
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                console().print(Text("\n/exit or Ctrl-D quits", style="dim"))

    def _execute(self, line: str) -> bool:
        """Execute one line. Returns False if the user quits."""
        match line.split():
            case []:
                pass
            case ["/exit" | "/quit" | "/bye"]:
                return False
            case ["/reset" | "/clear"]:
                self._reset()
            case ["/stats"]:
                console().print(Text(str(self._stats or "there is no answer yet"), style="dim"))
            case [word, *_] if word.startswith("/"):
                console().print(Text(HELP, style="dim"))
            case _:
                self._answer(line)
        return True

    def _reset(self) -> None:
        self._messages = list(self._beginning)
        self._session.reset()
        console().print(Text("new conversation", style="dim"))

    def _answer(self, line: str) -> None:
        """Answer a message. If that fails, the conversation stays as it was."""
        from pteron.llm import ContextFull

        messages = [*self._messages, {"role": "user", "content": line}]
        bar = PromptBar()
        options: Options = {**self._options, "on_prefill": bar}
        try:
            stream = self._session.stream(messages, allow_special=self._allow_special, **options)
        except ContextFull as error:
            complain(f"{error}: /reset starts a new conversation")
            return
        text, last = show(stream, bar)
        self._stats = last.stats
        if text:
            self._messages = [*messages, {"role": "assistant", "content": text}]
        if last.finish_reason == "cancelled":
            console().print(Text("(stopped)", style="dim"))
