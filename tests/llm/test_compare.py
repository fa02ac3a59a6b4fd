"""What `pteron compare` says of models that are the same, and of models that are not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pteron.llm
from pteron.cli.commands import app
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from pteron.llm.comparison import WINDOW
from tests.llm.tiny_models import LLAMA, Reference, weights, write_gguf

TEXT = "hello the cat 42, hello world and the rest of it. " * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compared")
    source = write_gguf(made / "tiny.gguf", LLAMA)
    pteron.llm.convert(source, made / "exact.pte", max_seq_len=8)
    pteron.llm.convert(source, made / "rounded.pte", max_seq_len=8, quantize="4bit")
    return made


def test_a_model_and_its_source(folder: Path, device: Device) -> None:
    done: list[tuple[float, float | None]] = []
    found = pteron.llm.compare(
        folder / "exact.pte",
        folder / "tiny.gguf",
        TEXT,
        device=device,
        progress=lambda what, at, of: done.append((at, of)),
    )
    assert found.divergence < 1e-6
    assert found.agreement == 1
    assert found.places > LLAMA.context  # so that the text was read in windows
    assert done[-1] == (found.places, found.places)
    assert found.perplexity == pytest.approx(found.reference_perplexity, rel=1e-3)


def test_results_equal_torch(folder: Path, device: Device) -> None:
    text = TEXT[:60]
    with pteron.llm.load(folder / "rounded.pte", device=device) as model:
        tokens = model.tokenizer.encode(text)
        assert 2 < len(tokens) <= min(WINDOW, LLAMA.context)
        state = model.decoder.new_state()
        rows = [model.decoder.logits([t], i, state) for i, t in enumerate(tokens[:-1])]
    q = torch.tensor(np.concatenate([row.reshape(1, -1) for row in rows])).double().log_softmax(-1)
    p = Reference(LLAMA, weights(LLAMA)).logits(tokens[:-1]).double().log_softmax(-1)
    found = pteron.llm.compare(folder / "rounded.pte", folder / "tiny.gguf", text, device=device)
    assert found.divergence == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-3)
    assert found.divergence > 1e-4
    assert found.agreement == pytest.approx(float((p.argmax(-1) == q.argmax(-1)).double().mean()))
    target = torch.tensor(tokens[1:])
    assert found.perplexity == pytest.approx(float(torch.nn.functional.nll_loss(q, target).exp()), rel=1e-4)


def test_command(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT[:40])
    paths = [str(folder / "tiny.gguf"), str(folder / "tiny.gguf")]
    result = CliRunner().invoke(app, ["compare", *paths, "--text", str(tmp_path / "text.txt")])
    assert result.exit_code == 0, result.output
    assert "the same most probable token: 100.00%" in result.output
    result = CliRunner().invoke(app, ["compare", *paths, "--text", str(tmp_path / "text.txt"), "--json"])
    assert json.loads(result.output)["divergence"] == 0


def test_invalid_arguments_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the text has 1 tokens"):
        pteron.llm.compare(folder / "tiny.gguf", folder / "tiny.gguf", "a")
    other = weights(LLAMA)
    other["token_embd.weight"] = other["token_embd.weight"][:-1]
    smaller = write_gguf(tmp_path / "other.gguf", LLAMA, other)
    with pytest.raises(InputError, match="only models of one vocabulary"):
        pteron.llm.compare(smaller, folder / "tiny.gguf", TEXT)
