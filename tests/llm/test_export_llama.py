"""Three ways to a llama in a `.pte` file, and all of them run: ExecuTorch's export, ours, and a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.engine.devices.opening import Device
from pteron.llm.decoder import Decoder
from pteron.tools.exporter import Export
from tests.llm import executorch_llama
from tests.llm.tiny_models import Reference, Tiny, weights, write_gguf
from tests.llm.torch_llama import Llama
from tests.support.calls import Call, check_file
from tests.support.compare import assert_close

TINY = Tiny("llama", tied=False)
MAX_LENGTH = 16
PROMPT = np.random.default_rng(0).integers(0, 200, (1, 23))
PIECES = (13, 1, 1, 5, 1, 2)


# -- ExecuTorch's own export ----------------------------------------------------------------------


def test_a_llama_from_executorch_runs_unchanged(stock: Path, device: Device) -> None:
    expected, text = np.load(stock / "logits.npy"), executorch_llama.text()
    assert len(np.unique(expected.argmax(1))) > 1  # the text makes a difference
    calls, start = [], 0
    for length, logits in zip(executorch_llama.PIECES, expected, strict=True):
        calls.append(Call([text[:, start : start + length], np.array([start])], [logits[None]]))
        start += length
    check_file(device, stock / "model.pte", calls, rtol=1e-4, atol=2e-5)


def test_a_llama_from_executorch_is_a_language_model(stock: Path, device: Device) -> None:
    with pteron.load(stock / "model.pte", device=device) as program:
        decoder = Decoder(program)
        assert decoder.max_length == executorch_llama.MAX_LENGTH - 1
        assert decoder.context_length == executorch_llama.CONTEXT
        length = executorch_llama.PIECES[0]
        logits = decoder.logits(executorch_llama.text()[0, :length].tolist(), 0, decoder.new_state())
        assert_close(logits, np.load(stock / "logits.npy")[0], rtol=1e-4, atol=2e-5)


# -- pteron.export and pteron.convert -------------------------------------------------------------


def four_bit_weights() -> dict[str, np.ndarray[Any, Any]]:
    """Matrices of 4-bit levels, so that both quantisers have the same weights to keep."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
    tensors = weights(TINY)
    for name, values in tensors.items():
        if values.ndim == 2:
            layer = torch.nn.Linear(values.shape[1], values.shape[0], bias=False)
            layer.weight = torch.nn.Parameter(torch.tensor(values))
            quantize_(layer, config)
            tensors[name] = layer.weight.dequantize().detach().numpy()
    return tensors


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Export, Path]:
    """The same model exported from torch, and converted from a GGUF file."""
    folder, stored = tmp_path_factory.mktemp("both"), four_bit_weights()
    # The vocabulary's odd size keeps the head out of 4 bits: there, torch gets the values themselves.
    module = Llama(TINY, weights(TINY) | {"output.weight": stored["output.weight"]})
    example = (torch.zeros(1, MAX_LENGTH, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    length = torch.export.Dim("length", min=1, max=MAX_LENGTH)
    exported = pteron.export(module, example, dynamic_shapes=({1: length}, None), quantize="4bit")
    path = folder / "converted.pte"
    pteron.convert(write_gguf(folder / "tiny.gguf", TINY, stored), path, max_seq_len=MAX_LENGTH)
    return exported, path


def test_a_llama_is_exported_in_one_delegate(both: tuple[Export, Path]) -> None:
    report = both[0].report
    assert (report.delegates, report.outside, report.ok) == (1, (), True)
    counts = {o.name: o.count for o in report.delegated}
    assert counts["et_vk.rms_norm.default"] == 2 * TINY.layers + 1
    assert counts["et_vk.linear_q4gsw.default"] == 7 * TINY.layers
    assert [layer.split(":")[0] for layer in report.unquantized] == ["output"]


def test_exported_and_converted_agree_with_each_other_and_with_torch(
    both: tuple[Export, Path], device: Device
) -> None:
    exported, converted = both
    expected = Reference(TINY, four_bit_weights()).logits(PROMPT[0].tolist()).numpy()
    with pteron.load(exported.buffer, device=device) as one, pteron.load(converted, device=device) as other:
        start = 0
        for length in PIECES:
            inputs = PROMPT[:, start : start + length], np.array([start])
            start += length
            first, second = one(*inputs), other(*inputs)
            assert_close(first, second, rtol=1e-4, atol=2e-5)
            assert_close(first[0], expected[start - 1], rtol=1e-4, atol=2e-5)
