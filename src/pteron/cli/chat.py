"""`pteron chat`: a conversation in the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pteron.cli import common, language, sampling_flags
from pteron.cli.chat_input import line_reader, read_message
from pteron.cli.language import fetch_model, open_model, show
from pteron.cli.output_places import prepare_file
from pteron.cli.progress import PromptBar
from pteron.cli.terminal import complain, console, grid, in_words, nbytes, plural
from pteron.errors import InputError, PteronError
from pteron.llm.options import Options

if TYPE_CHECKING:
    from pteron.llm import LanguageModel, Piece, Stats


@sampling_flags.takes_sampling_flags
def chat(
    model: language.Model,
    options: Options,
    from_hub: language.FromHub = False,
    system: Annotated[
        str | None, typer.Option("-sys", "--system-prompt", help="The instructions before the conversation.")
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option("--session", help="Continue the conversation in this file. Each turn is saved in it."),
    ] = None,
    context: language.Context = 0,
    kv_dtype: language.KvDtype = "f16",
    precision: language.Precision = "float32",
    ubatch: language.Ubatch = None,
    no_wait: language.NoWait = False,
    policy: sampling_flags.Policy = "shift",
    allow_special: language.AllowSpecial = False,
    tokenizer: language.TokenizerPath = None,
    data: common.DataPaths = None,
    device: language.DeviceName = None,
) -> None:
    """Chat with a language model. /help lists the commands. Ctrl-C stops an answer; Ctrl-D quits."""
    prepare_file(session)
    options["context_policy"] = policy
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
        llm.chat_prompt([{"role": "user", "content": "?"}])  # a model without a template is refused here
        talk = Conversation(llm, options, allow_special, session)
        if sys.stdin.isatty():
            _say(f"{model.name} on {llm.program.device.name}")
            _say(f"{_capacity(llm)}; /help lists the commands")
        if session is not None and session.exists():
            talk.load(str(session))
        if system is not None:
            talk.set_system(system)
        talk.run()
        if session is not None:
            talk.save(str(session))


def _capacity(llm: LanguageModel) -> str:
    return f"context of {llm.context_length} tokens, KV cache of {nbytes(llm.decoder.kv_nbytes)}"


def _say(text: str) -> None:
    console().print(Text(text, style="dim"))


class Conversation:
    """The messages so far are those of the session, which has their KV cache."""

    def __init__(
        self, llm: LanguageModel, options: Options, allow_special: bool, kept: Path | None = None
    ) -> None:
        """kept: the file in which each turn is saved."""
        self._llm = llm
        self._session = llm.session()
        self._options = options
        self._allow_special = allow_special
        self._kept = kept
        self._system: list[dict[str, Any]] = []  # the system prompt, if there is one
        self._attached: list[str] = []  # texts of files, for the next message
        self._stats: Stats | None = None
        self._is_over = False

    def run(self) -> None:
        """Read messages until the user quits. Ctrl-C stops an answer; at the prompt it clears the line."""
        # A parent process in the background makes its children ignore Ctrl-C. Undo this.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        read = line_reader()
        while not self._is_over:
            try:
                self._execute(read_message(read))
            except EOFError:
                if sys.stdin.isatty():
                    print()
                return
            except KeyboardInterrupt:
                _say("\n/exit or Ctrl-D quits")
            except (PteronError, OSError) as error:  # the conversation stays as it was
                complain(in_words(error))

    def _execute(self, text: str) -> None:
        if text.startswith("/") and "\n" not in text:
            name, _, argument = text.partition(" ")
            self._command(name, argument.strip())
        elif text.strip():
            self._answer(text)

    def _command(self, name: str, argument: str) -> None:
        for command in COMMANDS:
            if name in command.names:
                if command.argument.isupper() and not argument:
                    complain(f"{name} needs {command.argument}")
                else:
                    command.run(self, argument)
                return
        close = get_close_matches(name, [known for command in COMMANDS for known in command.names], 1)
        meant = f"Did you mean {close[0]}? " if close else ""
        complain(
            f"there is no command {name}. {meant}/help lists the commands. "
            "A message may begin with / after a space."
        )

    # -- answers ----------------------------------------------------------------------------------

    @property
    def _messages(self) -> list[dict[str, Any]]:
        return [*self._system, *(m for m in self._session.messages if m["role"] != "system")]

    def _answer(self, text: str) -> None:
        """Answer a message. If that fails, the conversation stays as it was."""
        from pteron.llm import ContextFull

        question = {"role": "user", "content": "\n\n".join([*self._attached, text])}
        messages = [*self._messages, question]
        bar = PromptBar()
        options: Options = {**self._options, "on_prefill": bar}
        try:
            stream = self._session.stream(messages, allow_special=self._allow_special, **options)
        except ContextFull as error:
            complain(f"{error}: /reset starts a new conversation")
            return
        assert stream.messages is not None
        left = len(stream.messages)
        _say_dropped(len(messages) - left)
        answer, last = show(stream, bar)
        self._stats = last.stats
        if answer or last.finish_reason != "cancelled":
            self._attached.clear()
        _say_dropped(left - len(stream.messages))
        self._say_end(last)
        self._keep()

    def _keep(self) -> None:
        """Save the messages. Their KV cache may be large: it is saved once, at the end."""
        if self._kept is not None:
            self._session.messages = self._messages
            self._session.save(self._kept, kv_cache=False)

    def _say_end(self, last: Piece) -> None:
        if last.finish_reason == "cancelled":
            _say("(stopped)")
        elif last.finish_reason == "length":
            most = self._options.get("max_new_tokens")
            is_long = last.stats is not None and last.stats.generated_tokens == most
            _say(f"(stopped after {most} tokens)" if is_long else "(the context is full: the answer is cut)")

    # -- commands ---------------------------------------------------------------------------------

    def help(self, _: str) -> None:
        console().print(
            grid([(f"{command.names[0]} {command.argument}", command.help) for command in COMMANDS])
        )
        _say(
            '\n  Text between """ and """ is one message, also over several lines. A \\ at the end of a line'
            "\n  continues the message in the next line. Pasted lines stay together. Ctrl-C stops an answer."
        )

    def set_system(self, text: str) -> None:
        """Show or change the system prompt. The conversation goes on with it."""
        if text:
            self._system = [{"role": "system", "content": text}]
        else:
            _say(self._system[0]["content"] if self._system else "there is no system prompt")

    def attach(self, path: str) -> None:
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{path} is not a text in UTF-8") from None
        self._attached.append(text)
        _say(f"{path}: {plural(len(text), 'character')}, sent with your next message")

    def save(self, path: str) -> None:
        self._session.messages = self._messages
        self._session.save(Path(path).expanduser())
        _say(f"saved {path}: {plural(len(self._messages), 'message')}")

    def load(self, path: str) -> None:
        loaded = self._llm.load_session(Path(path).expanduser())
        self._session.close()
        self._session = loaded
        self._system = [m for m in loaded.messages if m["role"] == "system"]
        self._attached.clear()
        held = f"{plural(len(loaded.messages), 'message')}, {plural(len(loaded.tokens), 'token')}"
        _say(f"the conversation of {path} goes on: {held}")

    def reset(self, _: str) -> None:
        self._session.reset()
        self._attached.clear()
        _say("new conversation")

    def show_stats(self, _: str) -> None:
        _say(str(self._stats or "there is no answer yet"))
        _say(f"{len(self._session.tokens)} tokens in a {_capacity(self._llm)}")

    def leave(self, _: str) -> None:
        self._is_over = True


def _say_dropped(count: int) -> None:
    if count:
        _say(f"(the context is full: the oldest {plural(count, 'message')} will not be read any more)")


@dataclass(frozen=True, slots=True)
class ChatCommand:
    names: tuple[str, ...]
    argument: str  # what follows the name; in capitals if it is needed
    help: str
    run: Callable[[Conversation, str], None]


COMMANDS = (
    ChatCommand(("/help", "/?"), "", "show this list", Conversation.help),
    ChatCommand(("/system",), "[text]", "show or change the system prompt", Conversation.set_system),
    ChatCommand(("/file",), "PATH", "send the text of a file with the next message", Conversation.attach),
    ChatCommand(("/save",), "PATH", "save the conversation in a file", Conversation.save),
    ChatCommand(("/load",), "PATH", "continue a saved conversation", Conversation.load),
    ChatCommand(("/reset", "/clear"), "", "start a new conversation", Conversation.reset),
    ChatCommand(("/stats",), "", "show the cost of the last answer", Conversation.show_stats),
    ChatCommand(("/exit", "/quit", "/bye"), "", "quit", Conversation.leave),
)
