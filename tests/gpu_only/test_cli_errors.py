"""Errors of the command line: one sentence that says what is wrong; with --json, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import DATA
from tests.support.cli import pteron_cli

PROGRAM = DATA / "dyn_rms.pte"
# Arguments, exit code, and a part of the message. {tmp} has an empty .npy file and the start of a .gguf file.
MISTAKES = [
    (["run", "{tmp}/missing.pte"], 1, "No such file or directory"),
    (["run", PROGRAM, "-i", "{tmp}/empty.npy"], 2, "neither a number nor a readable .npy or .npz file"),
    (["run", PROGRAM, "-m", "backward"], 2, "the methods are forward"),
    (["run", PROGRAM, "-d", "no such adapter"], 1, "no GPU adapter matches"),
    (["run", "{tmp}/model.gguf"], 1, "`pteron convert` makes a .pte of it"),
    (["inspect", "{tmp}/empty.npy"], 1, "the file is empty"),
    (["check", "{tmp}/model.gguf"], 1, "looks like a GGUF model"),
    (["verify", PROGRAM, "--live", "0"], 2, "--live"),
    (["profile", PROGRAM, "--repeat", "0"], 2, "--repeat"),
    (["tune", "{tmp}/missing.pte"], 1, "No such file or directory"),
    (["doctor", "--device", "no such adapter"], 1, "no GPU adapter matches"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES, ids=lambda x: str(x)[:40])
def test_errors_as_text_and_as_json(arguments: list[object], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.npy").touch()
    (tmp_path / "model.gguf").write_bytes(b"GGUF\3\0\0\0")
    given = [str(argument).format(tmp=tmp_path) for argument in arguments]
    told = pteron_cli(*given, code=code, env={"COLUMNS": "1000"})
    assert message in told.stdout + told.stderr and "Traceback" not in told.stderr
    answer = json.loads(pteron_cli(*given, "--json", code=code).stdout)
    assert message in str(answer.get("error", answer))
