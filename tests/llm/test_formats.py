"""Formats of GGUF files: the same numbers to the bit, and the same model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

import pteron
import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.errors import FormatError
from pteron.llm.gguf.codes import code
from pteron.llm.gguf.formats import FORMATS, decode_blocks
from pteron.llm.gguf.scales import narrowed
from pteron.pte import ProgramFile
from tests.llm import converted_files
from tests.llm.blocks import Kind, random_blocks
from tests.llm.tiny_models import LLAMA, Reference, delegate_of, weights, write_gguf

# Their groups have levels, and they have factors.
SUPER_BLOCKS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")
FLOATS = ("F32", "F16", "BF16")
TINY = replace(LLAMA, layers=1, width=256, hidden=256, heads=4, kv_heads=2, head_size=64)
PROMPT = [5, 77, 130, 9, 2, 41, 200, 11, 90, 63, 7, 150, 33]


@pytest.mark.parametrize("kind", FORMATS)
def test_weights_equal_those_of_the_file(kind: str) -> None:
    blocks = random_blocks(kind, 6, 512, 0.05)
    weight = code(decode_blocks(kind, blocks))
    np.testing.assert_array_equal(weight.dequantize(), gguf.dequantize(blocks, Kind[kind]))
    assert weight.scales.dtype == (np.int32 if kind in SUPER_BLOCKS else np.float16)
    assert weight.nbytes <= (1.25 if kind in SUPER_BLOCKS else 1.07) * blocks.nbytes


def test_scales_beyond_float16_stay_float32() -> None:
    def kept_as(*scales: float) -> Any:
        return narrowed(np.array([scales], np.float32)).dtype

    assert kept_as(1.0, 0.1, 0.0) == np.float16
    assert kept_as(2.0**-24) == np.float16  # exact, though small
    assert kept_as(1.0, 1e-7) == np.float16  # too small to matter beside the other
    assert kept_as(1e-7, 2e-7) == np.float32
    assert kept_as(1.0, 1e5) == np.float32


def model_in(kind: str, path: Path) -> tuple[Path, dict[str, np.ndarray[Any, Any]]]:
    """A tiny model whose matrices all have one format, and its tensors as floats."""
    tensors, floats = {}, {}
    for number, (name, values) in enumerate(weights(TINY).items()):
        if values.ndim == 1:
            tensors[name] = (values, Kind.F32)
        elif kind in FLOATS:
            tensors[name] = (gguf.quantize(values, Kind[kind]), Kind[kind])
        else:
            size = 2.0 if name == "token_embd.weight" else 0.05
            tensors[name] = (random_blocks(kind, *values.shape, size, number), Kind[kind])
        floats[name] = gguf.dequantize(*tensors[name]).reshape(values.shape)
    return write_gguf(path, TINY, tensors), floats


def test_formats_that_become_float16_are_named(tmp_path: Path) -> None:
    tensors = {name: (values, Kind.F32) for name, values in weights(TINY).items()}
    for name in ("blk.0.ffn_up.weight", "blk.0.ffn_down.weight"):
        tensors[name] = (gguf.quantize(tensors[name][0], Kind.TQ2_0), Kind.TQ2_0)
    made = pteron.llm.convert(write_gguf(tmp_path / "tiny.gguf", TINY, tensors), tmp_path / "tiny.pte")
    assert made.quantization == "as in the file: F32; rounded to float16: TQ2_0"


def divergence(expected: torch.Tensor, actual: np.ndarray[Any, Any]) -> float:
    p, q = (torch.log_softmax(torch.as_tensor(x).double(), -1) for x in (expected, actual))
    return float((p.exp() * (p - q)).sum())


@pytest.mark.parametrize("kind", (*FORMATS, *FLOATS))
def test_logits_equal_torch_with_the_same_weights(kind: str, tmp_path: Path, device: Device) -> None:
    source, floats = model_in(kind, tmp_path / "tiny.gguf")
    made = pteron.llm.convert(source, tmp_path / "tiny.pte", max_seq_len=16, max_context=32)
    assert made.quantization == f"as in the file: {kind}"
    converted_files.check_bytes(kind, made.path)
    expected = Reference(TINY, floats).logits(PROMPT)
    with pteron.load(tmp_path / "tiny.pte", device=device) as program:
        method = program.method()
        got = [method(np.array([PROMPT[:11]]), np.array([0]))]
        got += [method(np.array([[PROMPT[at]]]), np.array([at])) for at in (11, 12)]
    for wanted, logits in zip(expected[10:], got, strict=True):
        assert divergence(wanted, logits[0]) < 1e-5
        assert int(wanted.argmax()) == int(logits.argmax())


def test_formats_in_one_model_and_a_table_stored_once(tmp_path: Path, device: Device) -> None:
    tensors, floats = {}, {}
    kinds = iter(["Q8_0", "Q4_K", "Q4_K", "Q6_K", "Q5_0", "Q3_K", "F16", "Q2_K"])
    for number, (name, values) in enumerate(weights(TINY).items()):
        kind = Kind.F32 if values.ndim == 1 else Kind[next(kinds)]
        blocks = kind.name in FORMATS
        data = (
            random_blocks(kind.name, *values.shape, 0.05, number) if blocks else gguf.quantize(values, kind)
        )
        tensors[name] = (data, kind)
        floats[name] = gguf.dequantize(data, kind).reshape(values.shape)
    source = write_gguf(tmp_path / "tiny.gguf", TINY, tensors)
    pteron.llm.convert(source, tmp_path / "tiny.pte", max_seq_len=16, max_context=32)
    graph = delegate_of(tmp_path / "tiny.pte")[1].graph
    linears = [call for call in graph.chain if call.name == "pteron.linear_affine.default"]
    (embedding,) = (call for call in graph.chain if call.name == "pteron.embedding_affine.default")
    keys = [
        graph.constants[graph.values[value].value.constant_id].named_key  # type: ignore[union-attr]
        for value in (embedding.args[0], linears[-1].args[1])
    ]
    assert keys[0] == keys[1]
    expected = Reference(TINY, floats).logits(PROMPT)[-1]
    with pteron.load(tmp_path / "tiny.pte", device=device) as program:
        assert divergence(expected, program.method()(np.array([PROMPT]), np.array([0]))[0]) < 1e-5
    with ProgramFile.open(tmp_path / "tiny.pte") as file:
        facts = json.loads(bytes(file.named_data("pteron.model.json")))
    assert facts["quantization"].startswith("as in the file: ")


def test_a_scale_that_is_not_finite(tmp_path: Path) -> None:
    tensors = {name: (values, Kind.F32) for name, values in weights(TINY).items()}
    blocks = random_blocks("Q4_0", 256, 256, 0.05)
    blocks[3, :2] = (0, 0x7C)  # infinity
    tensors["blk.0.ffn_up.weight"] = (blocks, Kind.Q4_0)
    source = write_gguf(tmp_path / "tiny.gguf", TINY, tensors)
    with pytest.raises(FormatError, match=r"'blk.0.ffn_up.weight' holds values that are not finite"):
        pteron.llm.convert(source, tmp_path / "x.pte")
    assert not (tmp_path / "x.pte").exists()
