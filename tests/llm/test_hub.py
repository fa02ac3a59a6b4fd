"""`-hf org/repo`: which file is taken, how it is downloaded, and what is said when it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pteron.errors import InputError
from pteron.llm.hub import choose, download
from tests.llm import tiny_models
from tests.llm.fake_hub import fake_hub
from tests.llm.tiny_encoders import model, write_folder

GGUFS = ["README.md", "m-Q8_0.gguf", "m.Q4_K_M.gguf", "m-Q4_K_S.gguf", "mmproj-m-f16.gguf", "m-IQ4_NL.gguf"]


@pytest.mark.parametrize(
    ("files", "tag", "chosen"),
    [
        (GGUFS, None, "m.Q4_K_M.gguf"),
        (GGUFS, "q8_0", "m-Q8_0.gguf"),
        (GGUFS, "IQ4_NL", "m-IQ4_NL.gguf"),
        (["b-F16.gguf", "a-Q5_0.gguf", "x.safetensors"], None, "a-Q5_0.gguf"),
        (["Q4_K_M/m-Q4_K_M.gguf", "F16/m-F16.gguf"], "F16", "F16/m-F16.gguf"),
        (["model.safetensors", "config.json"], None, None),
    ],
)
def test_the_file_that_is_chosen(files: list[str], tag: str | None, chosen: str | None) -> None:
    assert choose(files, tag, "org/repo") == chosen


@pytest.mark.parametrize(
    ("files", "tag", "message"),
    [
        (GGUFS, "Q4_K", "org/repo has no file Q4_K; its GGUF files are: m-IQ4_NL.gguf, "),
        (["model.safetensors"], "Q8_0", "has no GGUF files, so there is no Q8_0: leave out :Q8_0"),
        (["pytorch_model.bin"], None, "has neither GGUF files nor safetensors"),
        (["m-Q4_K_M-00001-of-00002.gguf"], None, "is one part of a split model"),
    ],
)
def test_repositories_without_a_file_to_choose(files: list[str], tag: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(files, tag, "org/repo")


@pytest.mark.parametrize("name", ["repo", "a/b/c", "../x", "org/repo:", ""])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match="write org/repo, or org/repo:Q4_K_M"):
        download(name)


Run = Callable[..., Any]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    root = tmp_path_factory.mktemp("hub")
    (root / "tiny" / "decoder").mkdir(parents=True)
    tiny_models.write_gguf(root / "tiny" / "decoder" / "tiny-Q4_K_M.gguf", tiny_models.LLAMA)
    write_folder(root / "tiny" / "encoder", model("bert"))
    with fake_hub(root) as address:
        yield root, address


@pytest.fixture
def run(hub: tuple[Path, str], tmp_path: Path) -> Run:
    """Pteron's command in a process of its own: huggingface_hub reads its settings when it is imported."""

    def pteron(*arguments: str, **settings: str) -> Any:
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub[1],
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": "0",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            **settings,
        }
        command = [sys.executable, "-m", "pteron", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    return pteron


def test_a_file_is_downloaded_once(run: Run, tmp_path: Path) -> None:
    made = run("convert", "-hf", "tiny/decoder", str(tmp_path / "x.pte"))
    assert made.returncode == 0, made.stderr
    assert "tiny llama" in made.stdout
    for settings in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        again = run("convert", "-hf", "tiny/decoder:Q4_K_M", str(tmp_path / "y.pte"), **settings)
        assert again.returncode == 0, again.stderr
    assert (tmp_path / "x.pte").read_bytes() == (tmp_path / "y.pte").read_bytes()


def test_a_folder_is_downloaded(run: Run, tmp_path: Path) -> None:
    made = run("convert", "-hf", "tiny/encoder", str(tmp_path / "x.pte"), "--quantize", "8bit")
    assert made.returncode == 0, made.stderr
    assert "x.pte: encoder (bert" in made.stdout.replace(
        "\n", ""
    )  # not the commit, which the folder is named by
    assert "weights: 8 bits, groups of 32" in made.stdout
    assert "They differ from the weights of the file by 0." in made.stdout.replace("\n", " ")


def test_what_cannot_be_downloaded(run: Run, tmp_path: Path) -> None:
    output = str(tmp_path / "x.pte")
    for name, settings, message in (
        ("tiny/none", {}, "tiny/none is not on the hub, or is private: check the name"),
        ("tiny/decoder:Q2_K", {}, "has no file Q2_K; its GGUF files are: tiny-Q4_K_M.gguf"),
        ("tiny/other", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be downloaded"),
        ("tiny/other", {"HF_HUB_OFFLINE": "1"}, "check the network. Models that were downloaded before work"),
    ):
        refused = run("convert", "-hf", name, output, **settings)
        assert refused.returncode == 1
        assert message in refused.stderr and "Traceback" not in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
    assert not Path(output).exists()
