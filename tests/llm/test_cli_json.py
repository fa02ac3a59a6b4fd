"""With `--json`, every command that has a result prints one JSON document, and nothing else on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import pteron.llm
from pteron.cli.commands import app
from tests.llm.tiny_models import LLAMA, write_gguf
from tests.support import DATA
from tests.support.cli import pteron_cli

TALK = {"chat", "serve", "view"}  # these have no result: they talk with a person or with clients
CHANGE_THE_CACHE = {"tune", "cache list", "cache clear"}
# For each command: arguments, and what the document has.
CALLS = {
    "run": ("{data}/dyn_rms.pte -s 1,1,2,64", "outputs"),
    "inspect": ("{data}/dyn_rms.pte", "methods"),
    "check": ("{data}/dyn_rms.pte", "findings"),
    "verify": ("{data}/dyn_rms.pte --live 1 --against portable", "worst"),
    "profile": ("{data}/dyn_rms.pte --live 1 -n 1", "ops"),
    "tune": ("{data}/dyn_rms.pte --live 1 -n 1", "choices"),
    "devices": ("", "driver"),
    "doctor": ("", "adapters"),
    "map": ("{data}/emb_dyn.pte {tmp}/rows.csv {tmp}/out.csv -c input0=number", "bad_rows"),
    "web": ("{data}/dyn_rms.pte {tmp}/site --variant software", "folder"),
    "export": ("{tmp}/factory.py:make {tmp}/exported.pte --no-partition", "ok"),
    "embed": ("{data}/embedder_one_text.pte hello", "embedding"),
    "convert": ("{models}/tiny.gguf {tmp}/tiny.pte", "parameters"),
    "generate": ("{models}/tiny.pte -p hello -n 2", "text"),
    "bench": ("{models}/tiny.pte -p 2 -n 0 -r 1", "n_prompt"),
    "compare": ("{models}/tiny.pte {models}/tiny.pte --text {tmp}/text.txt", "perplexity"),
    "cache list": ("", "models"),
    "cache clear": ("", "freed_nbytes"),
}
FACTORY = """
import torch
def make():
    return torch.nn.ReLU(), (torch.ones(2),)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    pteron.llm.convert(write_gguf(made / "tiny.gguf", LLAMA), made / "tiny.pte", max_seq_len=8)
    return made


def all_commands(group: Any, lead: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{lead}{name} ")
        else:
            yield lead + name


def test_every_command_is_in_the_table() -> None:
    assert set(all_commands(typer.main.get_command(app))) == set(CALLS) | TALK


@pytest.mark.parametrize("command", CALLS)
def test_a_command_prints_one_document(
    command: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command in CHANGE_THE_CACHE:  # the others use the shaders that earlier tests compiled
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "rows.csv").write_text("number\n1\n2\n")
    (tmp_path / "text.txt").write_text("hello the cat")
    (tmp_path / "factory.py").write_text(FACTORY)
    arguments, key = CALLS[command]
    given = arguments.format(data=DATA, models=models, tmp=tmp_path).split()
    document = json.loads(pteron_cli(*command.split(), *given, "--json").stdout)
    assert key in (document[0] if isinstance(document, list) else document)
