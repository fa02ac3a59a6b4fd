"""Messages by the model's template, and the commands as a user meets them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pteron.cli.chat import COMMANDS
from pteron.cli.commands import app
from pteron.cli.language import cancelled_by_interrupt
from pteron.errors import InputError, PteronError
from pteron.llm import ChatTemplate, LanguageModel, model
from pteron.llm.options import split

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


# -- templates ----------------------------------------------------------------------------------


def test_messages_become_a_prompt(llm: LanguageModel) -> None:
    assert llm.chat_prompt(MESSAGES) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    tokens = llm.encode(MESSAGES)
    assert tokens[0] == llm.tokenizer.id_of("<|im_start|>")
    assert llm.generate(MESSAGES, max_new_tokens=2, eos_token_id=[]).stats.prompt_tokens == len(tokens)


def test_templates_know_what_hugging_faces_know() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}\n"
        "  {% if loop.index > 2 %}{% break %}{% endif %}\n"
        "{{ m | tojson }}{% endfor %}{{ strftime_now('%Y') }}",
        {"bos_token": "<s>"},
    )
    message = {"role": "user", "content": "<é>"}
    as_json = '{"role": "user", "content": "<é>"}'
    assert template.render([message] * 3) == f"<s>{as_json}{as_json}{time.strftime('%Y')}"


def test_a_template_may_refuse() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InputError, match="roles must alternate"):
        template.render(MESSAGES)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{% set x = messages.append(1) %}",
    ],
)
def test_templates_are_kept_in_a_sandbox(attack: str) -> None:
    with pytest.raises(InputError):
        ChatTemplate(attack).render(MESSAGES)


def test_a_broken_template_says_so() -> None:
    with pytest.raises(PteronError, match="template cannot be read"):
        ChatTemplate("{% for %}")


# -- commands -----------------------------------------------------------------------------------


def test_generate_prints_the_answer_and_nothing_else(llm: LanguageModel, model_folder: Path) -> None:
    want = llm.generate("hello", max_new_tokens=8)
    model = str(model_folder / "model.pte")
    result = CliRunner().invoke(app, ["generate", model, "-p", "hello", "-n", "8", "--temp", "0"])
    assert result.exit_code == 0, result.output
    assert result.stdout == want.text + "\n"
    assert "tokens/s" in result.stderr


def test_generate_reads_files_and_echoes(llm: LanguageModel, model_folder: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("hello")
    want = llm.generate("hello", max_new_tokens=4).text
    arguments = [
        "generate",
        str(model_folder / "model.pte"),
        "-f",
        str(prompt),
        "-n",
        "4",
        "--temp",
        "0",
        "--echo",
    ]
    assert CliRunner().invoke(app, arguments).stdout == f"hello{want}\n"


def test_generate_refuses_what_it_cannot_do(model_folder: Path) -> None:
    result = CliRunner().invoke(app, ["generate", str(model_folder / "model.pte"), "-p", "x" * 500])
    assert result.exit_code == 1
    assert "the prompt has 500 tokens" in result.stderr.replace("\n", " ")


def test_generate_reads_standard_input(llm: LanguageModel, model_folder: Path) -> None:
    model = str(model_folder / "model.pte")
    for more in ([], ["-f", "-"]):
        result = CliRunner().invoke(
            app, ["generate", model, "-n", "4", "--temp", "0", *more], input="hello\n"
        )
        assert result.stdout == llm.generate("hello", max_new_tokens=4).text + "\n"
    result = CliRunner().invoke(app, ["generate", model], input="")
    assert result.exit_code == 1 and "the prompt is empty" in result.stderr
    result = CliRunner().invoke(app, ["generate", model, "-p", "a", "-f", "b"])
    assert result.exit_code == 2 and "cannot be used together" in result.stderr


FLAGS: dict[str, tuple[str, Any]] = {
    "temperature": ("--temp", 0.9),
    "top_k": ("--top-k", 9),
    "top_p": ("--top-p", 0.8),
    "min_p": ("--min-p", 0.02),
    "typical_p": ("--typical", 0.9),
    "xtc_probability": ("--xtc-probability", 0.5),
    "xtc_threshold": ("--xtc-threshold", 0.05),
    "repetition_penalty": ("--repeat-penalty", 1.5),
    "presence_penalty": ("--presence-penalty", 0.5),
    "frequency_penalty": ("--frequency-penalty", 0.25),
    "penalty_last_n": ("--repeat-last-n", 20),
    "dry_multiplier": ("--dry-multiplier", 0.8),
    "dry_base": ("--dry-base", 1.5),
    "dry_allowed_length": ("--dry-allowed-length", 3),
    "dry_last_n": ("--dry-penalty-last-n", 30),
    "seed": ("--seed", 3),
    "max_new_tokens": ("-n", 5),
    "context_policy": ("--context-policy", "shift"),
}


def test_generate_follows_a_schema_an_expression_or_a_grammar(model_folder: Path, tmp_path: Path) -> None:
    model = str(model_folder / "model.pte")
    file = tmp_path / "form"

    def answer(text: str, *flags: str) -> Any:
        file.write_text(text)
        return CliRunner().invoke(app, ["generate", model, "-p", "a", "-q", *flags])

    assert json.loads(answer('{"const": [1, "b"]}', "--schema", str(file)).stdout) == [1, "b"]
    assert answer('start: "x" "y"~2', "--grammar", str(file)).stdout == "xyy\n"
    assert answer("", "--regex", "hello( world)?!").stdout in ("hello!\n", "hello world!\n")
    assert "not JSON" in answer("{", "--schema", str(file)).output
    assert "regex cannot be used" in answer("", "--regex", "(a").stderr


def test_flags_become_options(
    llm: LanguageModel, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(model, "split", lambda options: given.append(options) or split(options))
    flags = [str(word) for flag in FLAGS.values() for word in flag]
    arguments = ["generate", str(model_folder / "model.pte"), "-p", "hello", "-l", "40+1.5", "-l", "41-2"]
    result = CliRunner().invoke(app, [*arguments, *flags])
    want = {name: value for name, (_, value) in FLAGS.items()} | {"logit_bias": {40: 1.5, 41: -2.0}}
    assert {name: given[0][name] for name in want} == want
    assert result.stdout == llm.generate("hello", **want).text + "\n"
    result = CliRunner().invoke(app, ["generate", "model.pte", "-p", "hello", "-l", "12"])
    assert result.exit_code == 2 and "--logit-bias 12" in result.stderr
    result = CliRunner().invoke(app, ["generate", "model.pte", "-p", "hello", "--top-p", "2"])
    assert result.exit_code == 2 and "--top-p is 2" in result.stderr  # before the model is loaded


class Chat:
    """Runs `pteron chat` on lines of input."""

    def __init__(self, llm: LanguageModel, model: Path) -> None:
        self.llm = llm
        self._model = str(model)

    def __call__(self, *lines: str, options: tuple[str, ...] = (), code: int = 0) -> str:
        arguments = ["chat", self._model, "-n", "6", "--temp", "0", *options]
        result = CliRunner().invoke(app, arguments, input="".join(f"{line}\n" for line in lines))
        assert result.exit_code == code, result.output
        return result.output

    def answers(self, *questions: str, system: str = "") -> list[str]:
        """What the library answers."""
        talk = [{"role": "system", "content": system}] if system else []
        for question in questions:
            talk.append({"role": "user", "content": question})
            answer = self.llm.generate(talk, max_new_tokens=6, context_policy="shift")
            talk.append({"role": "assistant", "content": answer.text})
        return [message["content"] for message in talk if message["role"] == "assistant"]


@pytest.fixture
def chat(llm: LanguageModel, model_folder: Path) -> Chat:
    return Chat(llm, model_folder / "model.pte")


def test_chat_remembers_and_resets(chat: Chat) -> None:
    output = chat("hi", "again", "/stats", "/reset", "hi", "/exit", "never read")
    first, second = chat.answers("hi", "again")
    assert output.count(first) == 2 and second in output
    assert "cached" in output and "KV cache of" in output


def test_messages_of_several_lines(chat: Chat, tmp_path: Path) -> None:
    saved = tmp_path / "talk"
    chat('"""one', "two", '"""', "three \\", "four", '"""five"""', f"/save {saved}", options=("-n", "1"))
    messages = chat.llm.load_session(saved).messages
    assert [m["content"] for m in messages if m["role"] == "user"] == ["one\ntwo", "three \nfour", "five"]


def test_chat_commands(chat: Chat, tmp_path: Path) -> None:
    output = chat(
        "/help", "/sav x", "/nonsense", "/file", "/file /nowhere", "/system", "/load /nowhere", " /a"
    )
    assert all(command.names[0] in output for command in COMMANDS)
    assert "there is no command /sav. Did you mean /save?" in output
    assert "there is no command /nonsense. /help lists" in output
    assert "/file needs PATH" in output and output.count("/nowhere: No such file") == 2
    assert "there is no system prompt" in output
    assert chat.answers(" /a")[0] in output


def test_the_system_prompt_and_files(chat: Chat, tmp_path: Path) -> None:
    note = tmp_path / "a note.txt"
    note.write_text("it")
    output = chat("/system be brief", "/system", f"/file {note}", "what?", "more")
    assert "be brief" in output and "2 characters" in output
    for answer in chat.answers("it\n\nwhat?", "more", system="be brief"):
        assert answer in output
    note.write_bytes(b"\xff")
    assert "is not a text in UTF-8" in chat(f"/file {note}")


def test_a_conversation_is_saved_and_continued(chat: Chat, tmp_path: Path) -> None:
    session = tmp_path / "talk"
    first, second = chat.answers("hi", "again", system="be")
    options = ("--session", str(session))
    assert first in chat("hi", options=(*options, "-sys", "be"))
    output = chat("again", "/stats", options=options)
    assert second in output and "goes on: 3 messages" in output
    assert "of them cached" in output  # the KV cache came from the file
    loaded = chat(f"/load {session}", "/reset", "hi", f"/load {session}")
    assert "goes on: 5 messages" in loaded
    session.write_bytes(b"damaged")
    output = chat("hi", options=options, code=1)
    assert "talk: this is not a saved conversation" in output and first not in output
    assert session.read_bytes() == b"damaged"


def test_each_turn_is_saved(model_folder: Path, tmp_path: Path, llm: LanguageModel) -> None:
    """A process that is ended in any way leaves the turns that it has answered."""
    session = tmp_path / "talk"
    command = [sys.executable, "-m", "pteron", "chat", str(model_folder / "model.pte"), "-n", "4"]
    for number, end in enumerate((signal.SIGTERM, signal.SIGKILL), 1):
        pipe, out = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen([*command, "--session", str(session)], stdin=pipe, stdout=out) as process:
            assert process.stdin is not None
            process.stdin.write(b"hi\n")
            process.stdin.flush()
            deadline = time.monotonic() + 60
            while not session.exists() or len(llm.load_session(session).messages) < 2 * number:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.05)
            process.send_signal(end)
            assert process.wait(30) == -end
    messages = llm.load_session(session).messages
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2


def test_a_full_context_is_told(chat: Chat) -> None:
    long = "x" * 25
    output = chat(long, long, options=("--context-policy", "shift"))
    assert "the oldest 2 messages will not be read any more" in output
    assert chat.answers(long)[0] in output
    output = chat(long, long, options=("--context-policy", "stop"))
    assert "/reset starts a new conversation" in output
    assert "the answer is cut" in chat("x" * 70, options=("-n", "-1"))


def test_ctrl_c_stops_the_answer_and_not_the_program(llm: LanguageModel) -> None:
    before = signal.getsignal(signal.SIGINT)
    stream = llm.stream("hello", eos_token_id=[])
    with cancelled_by_interrupt(stream):
        next(stream)
        signal.raise_signal(signal.SIGINT)
        assert [piece.finish_reason for piece in stream] == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is before


# -- in a terminal --------------------------------------------------------------------------------


PASTE_MODE = b"\x1b[?2004h"  # switched on once for each prompt. A prompt itself may be drawn several times
PROMPT = b"\x1b[0m>"


class Terminal:
    """A command in a pseudo-terminal: what it shows can be waited for, and keys can be pressed."""

    def __init__(self, *command: str, state: Path) -> None:
        import pty

        self._screen, keyboard = pty.openpty()
        changes = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(state)}
        streams = {"stdin": keyboard, "stdout": keyboard, "stderr": keyboard}
        self.process = subprocess.Popen(command, env=os.environ | changes, **streams)
        os.close(keyboard)
        self._shown = b""

    def wait_for(self, text: bytes) -> bytes:
        """Read up to a text. What comes after it stays for the next call."""
        while text not in self._shown:
            is_alive = select.select([self._screen], [], [], 60)[0]
            assert is_alive, f"the terminal stands still at {self._shown!r}"
            self._shown += os.read(self._screen, 4096)
        before, _, self._shown = self._shown.partition(text)
        return before

    def wait_for_prompt(self) -> None:
        self.wait_for(PASTE_MODE)
        self.wait_for(PROMPT)

    def press(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_chat_in_a_terminal(llm: LanguageModel, model_folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "talk"
    command = [sys.executable, "-m", "pteron", "chat", str(model_folder / "model.pte"), "-n", "4"]
    with Terminal(*command, state=tmp_path) as screen:
        screen.wait_for(b"KV cache of")
        screen.wait_for_prompt()
        screen.press(b"half a line\x03")  # Ctrl-C at the prompt
        screen.wait_for(b"/exit or Ctrl-D quits")
        screen.wait_for_prompt()
        screen.press(b"\x1b[200~pasted\rlines\x1b[201~")
        screen.wait_for(b"lines")
        screen.press(b"\r")
        screen.wait_for_prompt()
        screen.press(b"hello\r")
        screen.wait_for(b"hello")
        screen.process.send_signal(signal.SIGINT)  # in the answer, or just before or after it
        screen.wait_for_prompt()
        screen.press(f"/save {saved}\r".encode())
        screen.wait_for(b"saved")
        screen.wait_for_prompt()
        screen.press(b"\x04")  # Ctrl-D
        assert screen.process.wait(30) == 0
    assert llm.load_session(saved).messages[0]["content"] == "pasted\nlines"
    with Terminal(*command, state=tmp_path) as screen:
        screen.wait_for_prompt()
        screen.press(b"\x1b[A\x1b[A")  # the line before the last of the earlier run
        screen.wait_for(b"hello")
        screen.press(b"\x15/exit\r")
        assert screen.process.wait(30) == 0
