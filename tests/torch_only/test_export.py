"""`pteron.export`: delegation, quantisation, the report, and errors. The module is not changed."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.runtime import Runtime
from torch import nn
from torch.export import Dim
from typer.testing import CliRunner

import pteron
from pteron._util.extras import MissingExtra
from pteron.cli.commands import app
from pteron.errors import InputError
from pteron.tools.inspect.inspect import inspect_method, open_file
from tests.torch_only.export_cases import (
    DYNAMIC,
    LONGEST,
    WIDTH,
    Language,
    Mlp,
    example_of,
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
    assert report.ok and report.delegates > 1
    assert "aten::any.out" in [o.name for o in report.outside]


def test_the_report_lists_operators_outside_the_delegate_with_reasons() -> None:
    report = exported("leftovers").report
    (left,) = report.outside
    assert (left.name, left.count, left.reasons) == ("aten::any.out", 1, ("no operator implementation",))
    assert report.ok
    assert "1× aten::any.out  (no operator implementation)" in str(report)
    assert "All 7 operators of forward can run." in str(report)


def test_nothing_is_delegated_without_partition() -> None:
    report = exported("mlp, not delegated").report
    assert (report.delegates, report.delegated) == (0, ())
    assert report.outside and report.ok


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
    assert made.report.ok and made.report.unquantized == ()
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
    for name in [n for n in sys.modules if n.startswith("pteron.tools.exporter.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("pteron.tools.exporter.lowering", raising=False)
    monkeypatch.setitem(sys.modules, "executorch.exir", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[export\]'"):
        pteron.export(Mlp(), rows(1))


def test_buffers_begin_with_their_contents_in_stock_executorch() -> None:
    name = "buffers with contents, not delegated"
    method = Runtime.get().load_program(exported(name).buffer).load_method("forward")
    module = module_of(name)
    for x in (example_of(name), rows(LONGEST), rows(LONGEST)):
        torch.testing.assert_close(list(method.execute(x)), list(module(*x)))


def test_warnings_about_the_module_are_shown_and_others_are_not() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.ones(3))
            self.last = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            self.last = x + self.calls
            return x * 2

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        pteron.export(Remembers(), (torch.zeros(3),))
    (warning,) = shown
    assert "attribute self.last was assigned during export" in str(warning.message)


# -- what can be exported -------------------------------------------------------------------------


def test_a_module_without_a_delegate_is_exported_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    report = pteron.export(torch.erfc, (torch.randn(3),)).report
    assert not report.delegates and not caplog.messages
    logging.warning("No Vulkan subgraphs can be partitioned: after the export it is shown")
    assert len(caplog.messages) == 1


def test_functions_arguments_by_name_and_dictionaries() -> None:
    def scale(x: dict[str, torch.Tensor], *, by: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"product": x["a"] * by, "sum": x["b"] + 1}

    a = torch.randn(3, 4)
    made = pteron.export(scale, ({"a": a, "b": a},), example_kwargs={"by": a}, partition=False)
    info = inspect_method(open_file(made.buffer), "forward")
    assert [port.name for port in info.inputs] == ["x_a", "x_b", "by"]
    assert [port.name for port in info.outputs] == ["product", "sum"]
    (product, total) = Runtime.get().load_program(made.buffer).load_method("forward").execute((a, a, a))
    torch.testing.assert_close((product, total), (a * a, a + 1))


def test_inputs_with_one_example_stay_apart() -> None:
    """torch.export takes equal tensors for one input, and a weight for no input at all."""
    module = nn.Linear(4, 4, bias=False)

    def forward(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return 2 * x + y + weight + module.weight

    module.forward = forward  # type: ignore[method-assign]
    example = torch.randn(4, 4)
    made = pteron.export(module, (example, example, module.weight), partition=False)
    given = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4)
    (got,) = Runtime.get().load_program(made.buffer).load_method("forward").execute(given)
    torch.testing.assert_close(got, forward(*given))
    module.forward = lambda x, y: y + x  # type: ignore[method-assign]
    of_torch = torch.export.export(module, (example, example))
    assert "nothing reads x: its values have no effect" in str(pteron.export(of_torch).report)
    assert "nothing reads" not in str(made.report)


def test_inputs_that_the_module_changes_are_outputs() -> None:
    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        x.add_(1)
        return {"double": 2 * x}

    made = pteron.export(forward, (torch.zeros(3),), partition=False)
    assert "the module changes x" in str(made.report) and "returns new_x" in str(made.report)
    info = inspect_method(open_file(made.buffer), "forward")
    assert [port.name for port in info.outputs] == ["new_x", "double"]


@pytest.mark.parametrize("module", [nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))])
def test_buffers_of_integers_do_not_stop_the_partitioner(module: nn.Module) -> None:
    report = pteron.export(module, (torch.randn(2, 4),)).report
    assert report.delegates == 1 and "failed" not in str(report)


class WritesParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


@pytest.mark.parametrize("partition", [False, True])
def test_a_parameter_that_the_module_writes_is_refused(partition: bool) -> None:
    with pytest.raises(pteron.UnsupportedError, match=r"writes the parameter total.*register_buffer"):
        pteron.export(WritesParameter(), (torch.ones(3),), partition=partition)


def test_a_method_of_a_module() -> None:
    module = Mlp().eval()
    made = pteron.export(module.up.forward, (torch.randn(2, WIDTH),), partition=False)
    method = Runtime.get().load_program(made.buffer).load_method("forward")
    x = torch.randn(2, WIDTH)
    torch.testing.assert_close(method.execute((x,))[0], module.up(x), rtol=1e-4, atol=1e-5)


def test_an_exported_program_and_its_file(tmp_path: Path) -> None:
    shapes = ({0: Dim("n", max=9)},)
    program = torch.export.export(Scaled(), (torch.randn(6, 4),), dynamic_shapes=shapes)
    weights = set(program.state_dict)
    torch.export.save(program, tmp_path / "scaled.pt2")
    for source in (program, tmp_path / "scaled.pt2", program):
        made = pteron.export(source)
        assert made.report.ok and made.report.delegates
        assert inspect_method(open_file(made.buffer), "forward").inputs[0].sizes == ("n <= 9", "4")
    assert set(program.state_dict) == weights
    with pytest.raises(InputError, match="need a module"):
        pteron.export(program, quantize="8bit")
    with pytest.raises(InputError, match="got int"):
        pteron.export(3)  # type: ignore[arg-type]


def test_operators_of_pteron_outside_the_core_set_are_exported() -> None:
    def special(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pooled = nn.functional.adaptive_max_pool1d(x, 3)
        return torch.erfc(x), torch.exp2(x).cumprod(0), pooled

    report = pteron.export(special, (torch.randn(4, 6),)).report
    assert report.ok and "aten::erfc.out" in [o.name for o in report.outside]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.searchsorted(x.sort().values, x), "aten.searchsorted.Tensor"),
        (torch.linalg.inv, "aten.linalg_inv_ex.default"),
        (lambda x: torch.bincount(x.flatten().long()), "aten.bincount.default"),
    ],
)
def test_operators_that_nobody_has_are_named(function: Any, name: str) -> None:
    with pytest.raises(pteron.UnsupportedError, match=f"the module uses {name}, which Pteron does not have"):
        pteron.export(function, (torch.rand(4, 4),))


def test_results_with_names_are_tuples() -> None:
    """`x.max(1)` has a type that ExecuTorch cannot write."""
    made = pteron.export(lambda x: (x.max(1), x.sort(1)), (torch.randn(4, 6),))
    assert made.report.ok and len(inspect_method(open_file(made.buffer), "forward").outputs) == 4


def test_dtypes_that_only_executorch_refuses_are_exported() -> None:
    """Its check of the edge dialect knows no complex numbers."""
    report = pteron.export(lambda x: torch.fft.rfft(x).conj().abs(), (torch.randn(4, 6),)).report
    assert report.ok and report.count_outside


def test_arguments_keep_their_names_also_if_they_are_constants() -> None:
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor, k: int, up: bool) -> torch.Tensor:
            return x * k if up else x

    made = pteron.export(Scale(), (torch.randn(2, 3), 3, True))
    info = inspect_method(open_file(made.buffer), "forward")
    assert [value.name for value in info.inputs] == ["x", "k", "up"]


def test_examples_of_several_methods_are_given_by_name() -> None:
    layer = nn.Linear(3, 4)
    with pytest.raises(InputError, match=r"example_inputs: expected a dictionary by method.*: up"):
        pteron.export({"up": layer}, (torch.randn(2, 3),))
    with pytest.raises(InputError, match=r"dynamic_shapes: expected a dictionary by method.*: up"):
        pteron.export({"up": layer}, {"up": (torch.randn(2, 3),)}, dynamic_shapes={"down": None})


def test_logging_is_left_as_it_was() -> None:
    before = logging.root.level, list(logging.root.handlers)
    pteron.export(nn.Linear(3, 4), (torch.randn(2, 3),))
    assert (logging.root.level, logging.root.handlers) == before


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

    made = pteron.export(Gate(), (torch.randn(6, WIDTH),), dynamic_shapes=({0: Dim("n", max=6)},))
    (x,) = inspect_method(open_file(made.buffer), "forward").inputs
    assert x.dynamic_dims == (0,)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu().cumsum(0)


@pytest.mark.parametrize("partition", [True, False])
@pytest.mark.parametrize(
    ("size", "largest", "notes"),
    [
        (Dim("n", max=20_000), 20_000, ()),
        (Dim("n", min=3), 6, ("x[0] has no maximum: it is at most 6, as in the example",)),
        (Dim.AUTO, 6, ("x[0] has no maximum: it is at most 6, as in the example",)),
    ],
)
def test_the_largest_size_is_the_one_that_was_given(
    partition: bool, size: Any, largest: int, notes: tuple[str, ...]
) -> None:
    x = torch.randn(6, 4)
    made = pteron.export(Scaled(), (x,), dynamic_shapes=({0: size},), partition=partition)
    info = inspect_method(open_file(made.buffer), "forward")
    assert info.inputs[0].max_shape == (largest, 4) and info.outputs[0].max_shape == (largest, 8)
    assert made.report.notes == notes and all(note in str(made.report) for note in notes)
    assert bool(made.report.delegates) == partition


def test_a_partitioner_that_limits_a_size_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    before = VulkanPartitioner.partition

    def limit(self: Any, program: Any) -> Any:
        (x,) = (n for n in program.graph.find_nodes(op="placeholder") if n.name == "x")
        assert x.meta["val"].shape[0] < 100  # a condition that the program has from now on
        return before(self, program)

    monkeypatch.setattr(VulkanPartitioner, "partition", limit)
    shapes = ({0: Dim("n", max=200)},)
    report = pteron.export(Scaled(), (torch.randn(6, 4),), dynamic_shapes=shapes).report
    assert report.delegates == 0 and "x[0] is at most 99, not 200" in str(report.partitioner_error)
    options = {"small_texture_limits": True}  # whoever gives options gets the delegate, and a note
    made = pteron.export(Scaled(), (torch.randn(6, 4),), dynamic_shapes=shapes, compile_options=options)
    assert made.report.delegates and "x[0] is at most 99, not 200" in made.report.notes


def test_a_program_that_the_partitioner_refuses_is_exported_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Any, program: Any) -> None:
        raise NotImplementedError("cannot add value for list [s21, 8, 1, 1]")

    monkeypatch.setattr(VulkanPartitioner, "partition", refuse)
    made = pteron.export(nn.Linear(3, 4), (torch.randn(2, 3),))
    assert made.report.ok and made.report.delegates == 0
    assert "Nothing is delegated: ExecuTorch's partitioner failed (NotImplementedError" in str(made.report)
    with pytest.raises(NotImplementedError):  # whoever asks for options of the delegate needs it
        pteron.export(nn.Linear(3, 4), (torch.randn(2, 3),), compile_options={"force_fp16": True})


def test_if_both_exports_fail_the_first_error_is_raised() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(Exception, match=r"[Dd]ata.?[Dd]ependent"):
        pteron.export(Fails(), (torch.randn(3),))
