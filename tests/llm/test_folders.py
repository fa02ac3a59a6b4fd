"""Hugging Face folders: each family gives the logits of transformers, for a prompt and while decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
import pteron.llm
from pteron.devices import Device
from tests.llm.tiny_decoders import CONTEXT, MODELS, logits, model, write_folder

TOKENS = [5, 77, 130, 9, 2, 41, 200, 11, 90, 63, 7, 150, 33, 8, 61, 240, 17, 3, 99, 12]


def check_logits(path: Path, wanted: Any, device: Device) -> None:
    """The prompt at once, in uneven pieces, and token by token."""
    size = wanted.max() - wanted.min()
    with pteron.load(path, device=device) as program:
        method = program.method()
        for pieces in ([16, 1, 1, 1, 1], [5, 1, 11, 3], [1] * 4):
            state, start = method.new_state(), 0
            for length in pieces:
                tokens = np.array([TOKENS[start : start + length]])
                got = method(tokens, np.array([start]), state=state)
                start += length
                np.testing.assert_allclose(got[0], wanted[start - 1], rtol=0, atol=2e-4 * size)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_a_family(name: str, tmp_path: Path, device: Device) -> None:
    reference = model(name)
    folder = write_folder(tmp_path / "tiny", reference)
    made = pteron.llm.convert(folder, tmp_path / "tiny.pte", max_seq_len=16)
    assert (made.name, made.max_context, made.quantization) == ("tiny", CONTEXT, "as in the file: F32")
    check_logits(made.path, logits(reference, TOKENS), device)
