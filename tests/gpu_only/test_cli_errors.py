"""Errors of the command line: one sentence that says what is wrong; with --json, as JSON."""

from __future__ import annotations

import json
import re
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
    (["inspect", PROGRAM, "--live", "0"], 1, "expected a size from 1 to 128"),
    (["run", PROGRAM, "--live", "0"], 2, "Invalid value for '--live'"),
    (["run", PROGRAM, "--live", "129"], 2, "expected a size from 1 to 128"),
    (["verify", PROGRAM, "--live", "0"], 2, "Invalid value for '--live'"),
    (["tune", PROGRAM, "--live", "0"], 2, "Invalid value for '--live'"),
    (["profile", PROGRAM, "--live", "129"], 2, "expected a size from 1 to 128"),
    (["profile", PROGRAM, "--repeat", "0"], 2, "--repeat"),
    (["tune", "{tmp}/missing.pte"], 1, "No such file or directory"),
    (["doctor", "--device", "no such adapter"], 1, "no GPU adapter matches"),
]

# The model is missing, too. So the message shows that the output is looked at first.
NO_MODEL, NO_FOLDER = "{tmp}/missing.pte", "{tmp}/empty.npy/a"
UNWRITABLE = [
    ["run", NO_MODEL, "-o", f"{NO_FOLDER}/y.npz"],
    ["run", NO_MODEL, "-o", NO_FOLDER],
    ["profile", NO_MODEL, "--trace", f"{NO_FOLDER}/trace.json"],
    ["verify", NO_MODEL, "--save-failure", NO_FOLDER],
    ["bench", "--report", f"{NO_FOLDER}/report.json"],
    ["convert", NO_MODEL, f"{NO_FOLDER}/model.pte"],
    ["map", NO_MODEL, "{tmp}/rows.csv", f"{NO_FOLDER}/y.csv"],
    ["embed", NO_MODEL, "text", "-o", f"{NO_FOLDER}/y.npy"],
    ["web", NO_MODEL, NO_FOLDER],
    ["chat", NO_MODEL, "--session", f"{NO_FOLDER}/chat.json"],
    ["run", NO_MODEL, "-o", "{tmp}/folder.npy"],
]


@pytest.mark.parametrize("arguments", UNWRITABLE, ids=lambda x: str(x)[:40])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.npy").touch()
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "rows.csv").write_text("x\n1\n")
    told = pteron_cli(*(argument.format(tmp=tmp_path) for argument in arguments), code=1)
    assert re.search(r"Not a directory|File exists|Is a directory", told.stderr), told.stderr


def test_folders_of_outputs_are_made(tmp_path: Path) -> None:
    output, trace = tmp_path / "a" / "b" / "y.npz", tmp_path / "c" / "d" / "trace.json"
    pteron_cli("run", PROGRAM, "-o", output)
    pteron_cli("profile", PROGRAM, "--trace", trace)
    assert output.is_file() and trace.is_file()


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES, ids=lambda x: str(x)[:40])
def test_errors_as_text_and_as_json(arguments: list[object], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.npy").touch()
    (tmp_path / "model.gguf").write_bytes(b"GGUF\3\0\0\0")
    given = [str(argument).format(tmp=tmp_path) for argument in arguments]
    told = pteron_cli(*given, code=code, env={"COLUMNS": "1000"})
    assert message in told.stdout + told.stderr and "Traceback" not in told.stderr
    answer = json.loads(pteron_cli(*given, "--json", code=code).stdout)
    assert message in str(answer.get("error", answer))
