"""Messages by the model's template, and the commands as a user meets them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pteron.cli.commands import app
from pteron.cli.language import cancelled_by_interrupt
from pteron.errors import InputError, PteronError
from pteron.llm import ChatTemplate, LanguageModel

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


def test_chat_remembers_and_resets(llm: LanguageModel, model_folder: Path) -> None:
    lines = "hi\nagain\n/stats\n/reset\nhi\n/nonsense\n/exit\n"
    arguments = ["chat", str(model_folder / "model.pte"), "-n", "6", "--temp", "0"]
    result = CliRunner().invoke(app, arguments, input=lines)
    assert result.exit_code == 0, result.output
    first = llm.generate([{"role": "user", "content": "hi"}], max_new_tokens=6).text
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "again"},
    ]
    second = llm.generate(history, max_new_tokens=6).text
    assert result.stdout.count(first) == 2
    assert second in result.stdout
    assert "cached" in result.stdout
    assert "/reset" in result.stdout  # the answer to a command that is none


def test_ctrl_c_stops_the_answer_and_not_the_program(llm: LanguageModel) -> None:
    before = signal.getsignal(signal.SIGINT)
    stream = llm.stream("hello", eos_token_id=[])
    with cancelled_by_interrupt(stream):
        next(stream)
        signal.raise_signal(signal.SIGINT)
        assert [piece.finish_reason for piece in stream] == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_chat_in_a_terminal_survives_ctrl_c(model_folder: Path) -> None:
    import pty

    screen, keyboard = pty.openpty()
    command = [sys.executable, "-m", "pteron", "chat", str(model_folder / "model.pte"), "--temp", "0"]
    chat = subprocess.Popen(command, stdin=keyboard, stdout=keyboard, stderr=keyboard)
    try:
        os.close(keyboard)
        _read_until(screen, b"> ")
        _interrupt(chat, screen)  # at the prompt
        assert b"/exit or Ctrl-D quits" in _read_until(screen, b"\n> ")
        os.write(screen, b"hello\n")
        _read_until(screen, b"hello\r\n")
        os.read(screen, 1)
        chat.send_signal(signal.SIGINT)  # in the answer, or just after it
        _read_until(screen, b"\n> ")
        os.write(screen, b"/stats\n")
        assert b"prompt" in _read_until(screen, b"\n> ")
        os.write(screen, b"/exit\n")
        assert chat.wait(30) == 0
    finally:
        chat.kill()
        chat.wait()
    os.close(screen)


def _interrupt(chat: subprocess.Popen[bytes], screen: int) -> None:
    """Ctrl-C, until it shows: input() may miss one that comes between its prompt and its waiting."""
    for _ in range(60):
        chat.send_signal(signal.SIGINT)
        if select.select([screen], [], [], 1)[0]:
            return


def _read_until(screen: int, end: bytes) -> bytes:
    shown = b""
    while not shown.endswith(end):
        assert select.select([screen], [], [], 60)[0], f"the terminal stands still at {shown!r}"
        shown += os.read(screen, 1)  # and not one byte more than was waited for
    return shown
