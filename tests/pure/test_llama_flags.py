"""Flags of llama.cpp in the commands for language models."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from pteron.cli.commands import app
from pteron.cli.llama_flags import FLAGS, LlamaCommand, translate

COMMANDS: dict[str, Any] = {
    name: command
    for name, command in vars(typer.main.get_command(app))["commands"].items()
    if isinstance(command, LlamaCommand)
}


def translated(name: str, line: str) -> tuple[str, list[str]]:
    own = {text: option for option in COMMANDS[name].params for text in option.opts}
    words, notes = translate(line.split(), own)
    return " ".join(words), notes


def test_the_commands_for_language_models_take_them() -> None:
    assert set(COMMANDS) == {"chat", "generate", "serve", "embed", "bench"}


@pytest.mark.parametrize(
    ("command", "line", "meaning"),
    [
        ("generate", "-m a.gguf -p hi -n 9", "a.gguf -p hi -n 9"),
        ("generate", "-p hi --model=a.gguf", "a.gguf -p hi"),
        ("generate", "-p -m a.gguf", "-p -m a.gguf"),  # the prompt is "-m"
        ("generate", "a.gguf -p hi -- -m", "a.gguf -p hi -- -m"),
        ("generate", "a.gguf -cnv", "a.gguf --chat"),
        ("generate", "a.gguf -no-cnv --jinja -n -1", "a.gguf -n -1"),
        ("generate", "a.gguf -ctk f32", "a.gguf --kv-dtype f32"),
        ("chat", "-cnv -m a.gguf", "a.gguf"),
        ("serve", "-np 8 -m a.gguf", "a.gguf -np 8"),
        ("embed", "-m a.gguf text", "a.gguf text"),
        ("embed", "--model a.gguf in.csv out.csv", "--model a.gguf in.csv out.csv"),
    ],
)
def test_flags_that_mean_something(command: str, line: str, meaning: str) -> None:
    assert translated(command, line) == (meaning, [])


@pytest.mark.parametrize(
    ("command", "line", "meaning", "note"),
    [
        ("generate", "a.gguf -ngl 99 -n 4", "a.gguf -n 4", "-ngl 99 is ignored: all layers run on the GPU"),
        ("generate", "a.gguf -t 8", "a.gguf", "-t 8 is ignored: the GPU computes, not threads"),
        ("chat", "-fa a.gguf", "a.gguf", "-fa is ignored: attention is always"),
        ("chat", "-fa on a.gguf", "a.gguf", "-fa on is ignored"),
        ("chat", "a.gguf -fa", "a.gguf", "-fa is ignored"),
        ("chat", "a.gguf -no-cnv", "a.gguf", "-no-cnv is ignored: `pteron generate` continues a text"),
        ("bench", "-m a.gguf -ctk q8_0", "a.gguf", "-ctk q8_0 is ignored: a KV cache is f16 or f32"),
        ("embed", "a.gguf -ctk f32 text", "a.gguf text", "-ctk f32 is ignored"),
    ],
)
def test_flags_that_are_ignored(command: str, line: str, meaning: str, note: str) -> None:
    words, notes = translated(command, line)
    assert words == meaning
    assert len(notes) == 1
    assert notes[0].startswith(note)


def test_every_ignored_flag_says_why() -> None:
    assert all(flag.why or flag.becomes for flag in FLAGS)


def test_a_command_line_of_llama_cpp() -> None:
    line = "generate -m missing.pte -p hi -f no.txt -n 4 -ngl 99 -t 8 -fa on -no-cnv -ctk f16"
    told = CliRunner().invoke(app, line.split())
    assert told.exit_code == 2
    assert "-p and -f cannot be used together" in told.stderr  # so all was read as it is meant
    assert [text.split()[0] for text in told.stderr.splitlines() if "is ignored" in text] == [
        "-ngl",
        "-t",
        "-fa",
    ]


def test_a_flag_without_its_value_is_refused() -> None:
    told = CliRunner().invoke(app, ["generate", "a.gguf", "-ngl"])
    assert told.exit_code == 2
    assert "-ngl needs a value" in told.stderr
