"""A linear layer or a convolution whose weight is too large for one binding is computed in parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import pteron
import pteron.llm
from pteron.compiler.passes import large_weights
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.calls import check_file, eager
from tests.support.export import export


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_parts_of_a_large_weight(
    device: Device, monkeypatch: pytest.MonkeyPatch, partitioner: bool, bias: bool
) -> None:
    monkeypatch.setattr(large_weights, "LARGEST_NBYTES", 12 * 4 * 12)  # 12 columns
    torch.manual_seed(0)
    module, live = torch.nn.Linear(12, 30, bias=bias), torch.export.Dim("n", min=1, max=9)
    program = export(module, (torch.randn(2, 9, 12),), ({1: live},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(2, n, 12),) for n in (9, 2, 1, 9)])
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5).nodes)
    assert names["aten.linear.default"] == 3
    assert names["aten.cat.default"] == 1


class Rows(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(30, 12).to(dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.words(tokens).float() * 2


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_parts_of_a_large_table(device: Device, monkeypatch: pytest.MonkeyPatch, partitioner: bool) -> None:
    monkeypatch.setattr(large_weights, "LARGEST_NBYTES", 12 * 4 * 12)  # 12 rows
    torch.manual_seed(0)
    module, live = Rows(torch.float32), torch.export.Dim("n", min=1, max=9)
    program = export(module, (torch.zeros(2, 9, dtype=torch.int64),), ({1: live},), partitioner=partitioner)
    ends = torch.tensor([[0, 11, 12, 23], [24, 29, 13, 0]])
    calls = eager(module, [(torch.randint(0, 30, (2, 9)),), (ends,), (torch.randint(0, 30, (2, 1)),)])
    names = Counter(node.name for node in check_file(device, program, calls, 0, 0).nodes)
    assert names["aten.embedding.default"] == names["pteron.part_index"] == 3
    with (
        pteron.load(program, device=device) as loaded,
        pytest.raises(InputError, match="an index into an embedding table of 30 rows"),
    ):
        loaded(torch.tensor([[0, 30], [1, 2]]))


@pytest.mark.parametrize("kind", ["Q4_0", "Q6_K", "F16"])
def test_a_large_vocabulary_of_a_gguf_file(
    kind: str, device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A table that also makes the logits is split alike in both places, and is stored once."""
    from tests.llm.test_formats import PROMPT, TINY, model_in

    source, _ = model_in(kind, tmp_path / "tiny.gguf")
    pteron.llm.convert(source, tmp_path / "tiny.pte", max_seq_len=16, max_context=32)
    found = []
    for largest in (large_weights.LARGEST_NBYTES, 256 * TINY.width // 5):
        monkeypatch.setattr(large_weights, "LARGEST_NBYTES", largest)
        before = device.allocated_nbytes
        with pteron.load(tmp_path / "tiny.pte", device=device, tune=False) as program:
            logits = program.method()(np.array([PROMPT]), np.array([0]))
            names = Counter(node.name for node in program.method().graph.nodes)
            found.append((logits, device.allocated_nbytes - before, names["pteron.part_index"]))
    (whole, nbytes, no_parts), (split, split_nbytes, parts) = found
    assert no_parts == 0 and parts > 1
    np.testing.assert_allclose(split, whole, rtol=1e-4, atol=1e-4 * np.abs(whole).max())
    table = {"Q4_0": 18 / 32, "Q6_K": 210 / 256, "F16": 2}[kind] * 256 * TINY.width
    assert split_nbytes - nbytes < table


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_parts_of_a_large_convolution(
    device: Device, monkeypatch: pytest.MonkeyPatch, partitioner: bool
) -> None:
    monkeypatch.setattr(large_weights, "LARGEST_NBYTES", 5 * 9 * 4 * 12)  # 12 channels
    torch.manual_seed(0)
    grouped = torch.nn.Conv2d(30, 60, 3, groups=2)  # too large, but not split
    module = torch.nn.Sequential(torch.nn.Conv2d(5, 30, 3), torch.nn.ReLU(), grouped).eval()
    live = torch.export.Dim("n", min=1, max=3)
    program = export(module, (torch.randn(3, 5, 8, 7),), ({0: live},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(n, 5, 8, 7),) for n in (3, 1, 2, 3)])
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5).nodes)
    assert names["pteron.packed_convolution"] == 3 + 1
    assert names["aten.cat.default"] == 1
