"""`pteron.export`: delegation, quantisation, the report, and errors. The module is not changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from torch import nn
from typer.testing import CliRunner

import pteron
from pteron.cli.commands import app
from pteron.errors import InputError
from pteron.extras import MissingExtra
from pteron.report.inspect import inspect_method, open_file
from tests.torch_only.export_cases import (
    DYNAMIC,
    LONGEST,
    WIDTH,
    Language,
    Mlp,
    exported,
    module_of,
    rows,
    tokens,
    write_factory,
)


def test_attention_stays_in_one_delegate() -> None:
    report = exported("attention").report
    assert (report.delegates, report.outside) == (1, ())
    assert {o.name: o.count for o in report.delegated}["et_vk.sdpa.default"] == 4
    assert {o.name: o.count for o in report.delegated}["et_vk.linear_q4gsw.default"] == 2


def test_unsupported_attention_is_decomposed() -> None:
    report = exported("odd heads").report
    assert report.runs and report.delegates > 1
    assert "aten::any.out" in [o.name for o in report.outside]


def test_the_report_lists_operators_outside_the_delegate_with_reasons() -> None:
    report = exported("leftovers").report
    (left,) = report.outside
    assert (left.name, left.count, left.reasons) == ("aten::any.out", 1, ("no operator implementation",))
    assert report.runs
    assert "1× aten::any.out  (no operator implementation)" in str(report)
    assert "All 7 operators of forward can run." in str(report)


def test_nothing_is_delegated_without_partition() -> None:
    report = exported("mlp, not delegated").report
    assert (report.delegates, report.delegated) == (0, ())
    assert report.outside and report.runs


def test_layers_that_cannot_be_quantized_are_named() -> None:
    report = exported("mlp, 4 bits").report
    assert report.unquantized == (
        "up: 90 outputs are not a multiple of 4",
        "down: rows of 90 weights are not a multiple of the group size 32",
    )
    assert "up: 90 outputs" in str(report)
    assert len(exported("mlp, 4 bits").buffer) < len(exported("mlp").buffer)


def test_the_weights_of_attention_are_not_quantized() -> None:
    report = exported("transformer layer, 4 bits").report
    assert report.unquantized == ("self_attn: torch's attention reads its weights as tensors of floats",)
    assert {o.name: o.count for o in report.delegated}["et_vk.linear_q4gsw.default"] == 2


def test_affine_weights_of_4_bits_have_an_operator_of_their_own() -> None:
    made = exported("language, 4 bits, affine")
    assert {o.name: o.count for o in made.report.outside} == {
        "pteron::embedding_affine.out": 1,
        "pteron::linear_affine.out": 1,
    }
    assert made.report.runs and made.report.unquantized == ()
    # The embedding and the head share one weight: half a byte each, and four bytes for each group.
    assert len(made.buffer) < 52 * WIDTH * (1 / 2 + 4 / 32) + 4096


def test_a_weight_that_two_layers_share_is_stored_once() -> None:
    module = Language()
    del module.head
    module.head = nn.Linear(WIDTH, 52, bias=False)  # of its own
    apart = pteron.export(module, tokens(LONGEST), dynamic_shapes=DYNAMIC, quantize="4bit")
    assert apart.report.nbytes - exported("language, 4 bits").report.nbytes > 0.9 * 52 * WIDTH / 2


def test_the_module_is_unchanged_and_the_file_complete(tmp_path: Path) -> None:
    module = module_of("mlp").train()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    path = tmp_path / "mlp.pte"
    made = pteron.export(
        module,
        rows(LONGEST),
        path,
        quantize="4bit",
        constant_methods={"get_max_seq_len": LONGEST},
    )
    assert path.read_bytes() == made.buffer
    assert [p.name for p in tmp_path.iterdir()] == ["mlp.pte"]
    assert module.training and module.dropout.training
    assert type(module.head.weight) is nn.Parameter and module.head.weight.requires_grad
    after = module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert "get_max_seq_len" in pteron.check(path).methods


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "3bit"}, "'4bit' or '8bit' or None, not '3bit'"),
        ({"quantize": "4bit", "partition": False}, "needs partition=True"),
        ({"quantize": "4bit", "group_size": 6}, "multiple of 4, not 6"),
        ({"example_inputs": torch.zeros(1, WIDTH)}, r"write \(x,\)"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pteron.export(Mlp(), **{"example_inputs": rows(1), **options})


def test_errors_of_torch_are_not_changed() -> None:
    with pytest.raises(RuntimeError, match="must have same reduction dim"):
        pteron.export(Mlp(), (torch.zeros(2, WIDTH + 1),))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("pteron.exporting.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("pteron.exporting.lowering", raising=False)
    monkeypatch.setitem(sys.modules, "executorch.exir", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pteron\[export\]'"):
        pteron.export(Mlp(), rows(1))


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{path}:nothing", "has no function 'nothing'"),
        ("{path}:wrong", "must return (module, example_inputs)"),
        ("{path}", "write path/to/file.py:name"),
        ("{path}.py:make", "there is no file"),
        ("no_such_package.models:make", "there is no module"),
    ],
)
def test_a_wrong_name_is_explained(tmp_path: Path, name: str, message: str) -> None:
    factory = write_factory(tmp_path)
    arguments = ["export", name.format(path=factory), str(factory.parent / "out.pte")]
    folders = list(sys.path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert sys.path == folders
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert not (factory.parent / "out.pte").exists()


def test_a_size_stays_dynamic_when_a_tensor_is_split() -> None:
    class Gate(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = x.split(WIDTH // 2, dim=-1)
            return a * torch.sigmoid(b)

    made = pteron.export(
        Gate(), (torch.randn(6, WIDTH),), dynamic_shapes=({0: torch.export.Dim("n", max=6)},)
    )
    (x,) = inspect_method(open_file(made.buffer), "forward").inputs
    assert x.dynamic_dims == (0,)


def test_a_program_that_the_partitioner_refuses_is_exported_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Any, program: Any) -> None:
        raise NotImplementedError("cannot add value for list [s21, 8, 1, 1]")

    monkeypatch.setattr(VulkanPartitioner, "partition", refuse)
    made = pteron.export(nn.Linear(3, 4), (torch.randn(2, 3),))
    assert made.report.runs and made.report.delegates == 0
    assert "Nothing is delegated: ExecuTorch's partitioner failed (NotImplementedError" in str(made.report)
    with pytest.raises(NotImplementedError):  # whoever asks for options of the delegate needs it
        pteron.export(nn.Linear(3, 4), (torch.randn(2, 3),), compile_options={"force_fp16": True})


def test_if_both_exports_fail_the_first_error_is_raised() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(Exception, match=r"[Dd]ata.?[Dd]ependent"):
        pteron.export(Fails(), (torch.randn(3),))
