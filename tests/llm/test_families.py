"""Every family, from GGUF files and from folders, gives the logits of transformers.

Prompts and single tokens are fed, at positions beyond any window.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import pteron
import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.families import ARCHITECTURES
from pteron.llm.gguf.numpy_operators import reference
from pteron.llm.sources import open_decoder
from tests.llm import converted_files
from tests.llm.gguf_families import FAMILIES, Family, logits, model, write_gguf
from tests.llm.tiny_decoders import write_folder

TOKENS = [int(token) for token in np.random.default_rng(7).integers(3, 250, 40)]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def test_logits_are_those_of_transformers(
    family: Family, tmp_path: Path, device: Device, request: pytest.FixtureRequest
) -> None:
    original = model(family)
    source = write_gguf(tmp_path / "tiny.gguf", family, original)
    tokens = TOKENS[: family.context]
    wanted = logits(original, tokens)
    size = wanted.max() - wanted.min()
    for path in (source, write_folder(tmp_path / "tiny", original)):
        checkpoint = open_decoder(path)
        computed = reference(checkpoint.config, checkpoint.tensors, tokens).logits()
        np.testing.assert_allclose(computed, wanted, rtol=0, atol=1e-4 * size, err_msg=path.name)
    made = pteron.llm.convert(source, tmp_path / "tiny.pte", max_seq_len=20, max_context=family.context)
    assert made.architecture == family.architecture
    converted_files.check_graph(request.node.callspec.id, made.path)
    with pteron.load(made.path, device=device, tune=False) as program:
        method = program.method()
        for pieces in ([20, 1, 1, 12, 1], [5, 1, 11, 3, 17]):
            state, start = method.new_state(), 0
            for length in pieces:
                if start + length > len(tokens):
                    break
                got = method(np.array([tokens[start : start + length]]), np.array([start]), state=state)
                start += length
                np.testing.assert_allclose(got[0], wanted[start - 1], rtol=0, atol=2e-4 * size)


def test_coded_experts_are_those_of_the_file(tmp_path: Path, device: Device) -> None:
    family = FAMILIES["mixtral"]
    kind = gguf.GGMLQuantizationType.Q4_1
    source = write_gguf(tmp_path / "tiny.gguf", family, model(family), kind)
    checkpoint = open_decoder(source)
    assert checkpoint.tensors.kind("blk.0.ffn_up_exps.weight") == "Q4_1"
    wanted = reference(checkpoint.config, checkpoint.tensors, TOKENS[:21]).logits()
    made = pteron.llm.convert(source, tmp_path / "tiny.pte", max_seq_len=20)
    with pteron.load(made.path, device=device, tune=False) as program:
        method = program.method()
        for start, end in ((0, 20), (20, 21)):
            got = method(np.array([TOKENS[start:end]]), np.array([start]))
            atol = 2e-4 * (wanted.max() - wanted.min())
            np.testing.assert_allclose(got[0], wanted[end - 1], rtol=0, atol=atol)


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
BAD_FACTS: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"block_count": 0}, "cannot have 0 layers"),
    "too many layers": ({"block_count": 1 << 30}, "cannot have 1073741824 layers"),
    "no heads": ({"attention.head_count": 0}, "sizes do not fit together"),
    "more rotated than there is": ({"rope.dimension_count": 64}, "64 of 16 elements of a head cannot"),
    "an odd rotation": ({"rope.dimension_count": 7}, "7 of 16 elements of a head cannot"),
    "no base": ({"rope.freq_base": 0.0}, "with the base 0"),
    "not a number": ({"rope.freq_base": float("nan")}, "with the base nan"),
    "no factor": ({**YARN, "rope.scaling.factor": 0.0}, "scaling factor must be positive"),
    "an infinite factor": (
        {**YARN, "rope.scaling.factor": float("inf"), "rope.scaling.original_context_length": 16},
        "frequencies must be finite",
    ),
    "no context": ({**YARN, "rope.scaling.original_context_length": 0}, "original context must be positive"),
    "another scaling": ({**YARN, "rope.scaling.type": "bent"}, "'bent' is not supported"),
    "a negative scale": ({"residual_scale": -1.0}, "must be positive and finite"),
    "more used than there are": ({"expert_count": 2, "expert_used_count": 3}, "sizes do not fit together"),
}


@pytest.fixture(scope="module")
def llama() -> Any:
    return model(FAMILIES["llama"])


@pytest.mark.parametrize("case", BAD_FACTS)
def test_impossible_facts_are_refused(case: str, llama: Any, tmp_path: Path) -> None:
    facts, message = BAD_FACTS[case]
    source = write_gguf(tmp_path / "bad.gguf", replace(FAMILIES["llama"], facts=facts), llama)
    with pytest.raises((FormatError, UnsupportedError), match=message):
        pteron.llm.convert(source, tmp_path / "x.pte")
    assert not (tmp_path / "x.pte").exists()


def test_the_document_lists_every_family() -> None:
    document = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[2:4]]
        for line in document.splitlines()
        if line.startswith("| ")
    ]
    listed = {(name.strip("`"), kind.strip("`")) for name, kinds in rows for kind in kinds.split(", ")}
    families = {
        (family.name, kind) for family in ARCHITECTURES.values() for kind in family.model_types or ("",)
    }
    assert families <= listed
    tested = {(family.architecture, family.model_type) for family in FAMILIES.values()}
    assert {name for name, _ in families} <= {name for name, _ in tested}
