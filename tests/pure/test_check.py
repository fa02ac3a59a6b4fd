"""`pteron check` lists exactly the problems of a program."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pteron
from pteron.cli.commands import app
from pteron.engine.devices.recording import UNLIMITED, RecordingDevice
from pteron.errors import FormatError, UnsupportedError
from pteron.pte import program_chunks, schema, vulkan
from tests.support import DATA

SOUND = sorted(DATA.glob("*.pte"))


def tensor(offset: int) -> schema.EValue:
    return schema.EValue(
        schema.Tensor(
            schema.ScalarType.FLOAT,
            sizes=(2, 2),
            dim_order=(0, 1),
            allocation_info=schema.AllocationDetails(1, offset),
        )
    )


def method(
    name: str, *calls: str | schema.DelegateCall, backends: Sequence[schema.BackendDelegate] = ()
) -> schema.ExecutionPlan:
    """A chain of kernels with one input and one output each, by name, or of delegates."""
    kernels = [call for call in calls if isinstance(call, str)]
    instructions = []
    for number, call in enumerate(calls):
        if isinstance(call, str):
            call = schema.KernelCall(kernels.index(call), (number, number + 1, number + 1))
        instructions.append(schema.Instruction(call))
    return schema.ExecutionPlan(
        name,
        values=tuple(tensor(16 * n) for n in range(len(calls) + 1)),
        inputs=(0,),
        outputs=(len(calls),),
        chains=(schema.Chain(instructions=tuple(instructions)),),
        operators=tuple(schema.Operator(*kernel.split(".")) for kernel in kernels),
        delegates=tuple(backends),
    )


def program(
    *methods: schema.ExecutionPlan, delegates: Sequence[vulkan.VkGraph] = (), other: int = 0
) -> bytes:
    """A file with these methods. Inline data is that of the delegates, then that of `other` backends."""
    blobs = [vulkan.write_delegate(graph) for graph in delegates] + [b"opaque"] * other
    inline = tuple(schema.BackendDelegateInlineData(memoryview(blob)) for blob in blobs)
    return b"".join(program_chunks(schema.Program(execution_plan=methods, backend_delegate_data=inline), ()))


def backend(name: str, index: int) -> schema.BackendDelegate:
    return schema.BackendDelegate(name, schema.BackendDelegateDataReference(index=index))


def delegate_of(*operators: str) -> vulkan.VkGraph:
    """A chain of operators with one input and one output each."""
    value = vulkan.VkTensor(vulkan.VkDataType.FLOAT32, dims=(2, 2), constant_id=-1)
    return vulkan.VkGraph(
        chain=tuple(vulkan.OperatorCall(n, name, (n, n + 1)) for n, name in enumerate(operators)),
        values=tuple(vulkan.VkValue(value) for _ in range(len(operators) + 1)),
        input_ids=(0,),
        output_ids=(len(operators),),
    )


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_valid_programs_can_run(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "pteron"):
        report = pteron.check(path)
    assert report.ok and not report.findings and not caplog.records
    assert "forward" in report.methods
    assert report.operators > 0


def test_every_missing_kernel_is_listed_with_its_places() -> None:
    data = program(method("forward", "aten::relu.out", "aten::nosuch.out", "my::own.out", "aten::nosuch.out"))
    report = pteron.check(data)
    assert not report.ok
    assert [(f.what, f.count, f.places) for f in report.findings] == [
        ("aten::nosuch.out", 2, ("instruction 1", "instruction 3")),
        ("my::own.out", 1, ("instruction 2",)),
    ]


def test_readers_of_a_missing_kernels_result_are_not_listed() -> None:
    report = pteron.check(program(method("forward", "aten::nosuch.out", "aten::relu.out", "aten::abs.out")))
    assert [f.what for f in report.findings] == ["aten::nosuch.out"]


def test_all_methods_delegates_and_backends_are_checked() -> None:
    data = program(
        method(
            "prefill",
            schema.DelegateCall(0, (0, 1)),
            schema.DelegateCall(1, (1, 2)),
            schema.DelegateCall(2, (2, 3)),
            "aten::relu.out",
            backends=[backend("VulkanBackend", 0), backend("VulkanBackend", 1), backend("QnnBackend", 2)],
        ),
        method("decode", "aten::nosuch.out"),
        delegates=[
            delegate_of("aten.relu.default", "aten.unheard_of.default"),
            delegate_of("et_vk.secret.default", "aten.unheard_of.default"),
        ],
        other=1,
    )
    report = pteron.check(data)
    assert [(f.method, f.what, f.places) for f in report.findings] == [
        ("prefill", "aten.unheard_of.default", ("delegate 0, operator 1", "delegate 1, operator 1")),
        ("prefill", "et_vk.secret.default", ("delegate 1, operator 0",)),
        (
            "prefill",
            "delegate for QnnBackend",
            ("delegate 2 at instruction 2, with the tensors [2, 2], [2, 2]",),
        ),
        ("decode", "aten::nosuch.out", ("instruction 0",)),
    ]
    foreign = report.findings[2]
    assert "QnnBackend" in foreign.why and "VulkanPartitioner" in foreign.why
    with pytest.raises(UnsupportedError) as raised:
        pteron.load(data, device=RecordingDevice())
    for finding in report.findings:
        assert str(finding) in str(raised.value)


def test_arguments_that_a_rule_refuses_are_listed() -> None:
    """`relu` accepts a tensor of any shape, but here its output is too small."""
    plan = method("forward", "aten::relu.out")
    small = schema.EValue(schema.Tensor(schema.ScalarType.FLOAT, sizes=(1,), dim_order=(0,)))
    report = pteron.check(
        program(
            schema.ExecutionPlan(
                plan.name,
                values=(plan.values[0], small),
                inputs=plan.inputs,
                outputs=plan.outputs,
                chains=plan.chains,
                operators=plan.operators,
            )
        )
    )
    assert [(f.what, f.places) for f in report.findings] == [
        ("aten.relu.default", ("node 0, instruction 0",))
    ]
    assert "does not fit its maximum" in report.findings[0].why


def test_an_unsupported_dtype_is_named() -> None:
    plan = method("forward", "aten::relu.out")
    odd = schema.EValue(schema.Tensor(schema.ScalarType.FLOAT8E5M2, sizes=(2, 2), dim_order=(0, 1)))
    report = pteron.check(
        program(
            schema.ExecutionPlan(
                plan.name,
                values=(plan.values[0], odd),
                inputs=plan.inputs,
                outputs=(0,),
                chains=plan.chains,
                operators=plan.operators,
            )
        )
    )
    assert [f.what for f in report.findings] == ["aten::relu.out"]
    assert "float8e5m2" in report.findings[0].why


def constant_of(*numbers: float) -> bytes:
    """A file that adds a constant to its input, of int64 or float64."""
    whole = isinstance(numbers[0], int)
    kind = schema.ScalarType.LONG if whole else schema.ScalarType.DOUBLE
    shape = {"sizes": (len(numbers),), "dim_order": (0,)}
    plan = schema.ExecutionPlan(
        "forward",
        values=(
            *(schema.EValue(schema.Tensor(kind, **shape)) for _ in range(2)),
            schema.EValue(schema.Tensor(kind, data_buffer_idx=1, **shape)),
            schema.EValue(schema.Int(1)),
        ),
        inputs=(0,),
        outputs=(1,),
        chains=(schema.Chain(instructions=(schema.Instruction(schema.KernelCall(0, (0, 2, 3, 1, 1))),)),),
        operators=(schema.Operator("aten::add", "out"),),
    )
    data = struct.pack(f"<{len(numbers)}{'q' if whole else 'd'}", *numbers)
    made = schema.Program(execution_plan=(plan,), constant_segment=schema.SubsegmentOffsets(0, (0, 0)))
    return b"".join(program_chunks(made, (data,)))


@pytest.mark.parametrize("numbers", [(1, 2), (1, 2**40), (1.0, 2.0), (1.0, 1e300)], ids=str)
def test_it_agrees_with_load_about_constants(numbers: tuple[float, ...]) -> None:
    """int64 is exact, and a float64 beyond float32 becomes infinite."""
    data = constant_of(*numbers)
    assert pteron.check(data)
    pteron.load(data, device=RecordingDevice()).method()


def test_the_limits_of_a_device_are_checked() -> None:
    small = RecordingDevice(limits={**UNLIMITED, "max-buffer-size": 64}, name="a small GPU")
    report = pteron.check(SOUND[0], device=small)
    assert not report and report.adapter == "a small GPU"
    assert {finding.what for finding in report.findings} == {"memory"}
    assert "a small GPU binds at most 64 at once" in str(report)
    with pytest.raises(pteron.OutOfMemory) as raised:
        pteron.load(SOUND[0], device=small).method()
    assert str(raised.value) in str(report)
    assert pteron.check(SOUND[0], device=RecordingDevice())


class TestCommand:
    def run(self, *arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["check", *map(str, arguments)])
        return result.exit_code, result.stdout

    def test_all_is_well(self) -> None:
        code, text = self.run(SOUND[0])
        assert code == 0
        assert text.count("\n") == 1 and "can run" in text

    def test_problems(self, tmp_path: Path) -> None:
        path = tmp_path / "model.pte"
        path.write_bytes(program(method("forward", "aten::nosuch.out", "aten::nosuch.out")))
        code, text = self.run(path)
        assert code == 1
        assert "aten::nosuch.out" in text and "2×" in text and "instruction 1" in text

    @pytest.mark.parametrize("missing", [False, True])
    def test_json(self, tmp_path: Path, missing: bool) -> None:
        path = tmp_path / "model.pte"
        path.write_bytes(program(method("forward", "aten::nosuch.out" if missing else "aten::relu.out")))
        code, text = self.run(path, "--json")
        report = json.loads(text)
        assert code == int(missing)
        assert report["ok"] is not missing
        assert [(f["what"], f["places"]) for f in report["findings"]] == (
            [("aten::nosuch.out", ["instruction 0"])] if missing else []
        )

    def test_no_program(self, tmp_path: Path) -> None:
        (tmp_path / "not.pte").write_bytes(b"hello")
        assert self.run(tmp_path / "not.pte")[0] == 1
        with pytest.raises(FormatError):
            pteron.check(tmp_path / "not.pte")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ((vulkan.Int(-1), vulkan.Int(1), vulkan.SymInt()), None),
        ((vulkan.Int(2), vulkan.Int(0), vulkan.SymInt()), "has no dimension 2"),
        ((vulkan.Double(0.5), vulkan.Int(0), vulkan.SymInt()), "cannot read an element of .* at 0.5, 0"),
        ((vulkan.Int(0), vulkan.Int(0), vulkan.Int(3)), "its result 3 is not a SymInt"),
    ],
)
def test_an_element_of_an_input_as_an_integer(values: tuple[object, ...], why: str | None) -> None:
    x, *_ = delegate_of("aten.neg.default").values
    graph = replace(
        delegate_of("aten.neg.default"),
        chain=(
            vulkan.OperatorCall(0, "et_vk.select_as_symint.default", (0, 2, 3, 4)),
            vulkan.OperatorCall(1, "aten.neg.default", (0, 1)),
        ),
        values=(x, x, *map(vulkan.VkValue, values)),  # type: ignore[arg-type]
    )
    plan = method("forward", schema.DelegateCall(0, (0, 1)), backends=[backend(vulkan.BACKEND_ID, 0)])
    data = program(plan, delegates=[graph])
    if why is None:
        assert pteron.check(data).ok
        return
    with pytest.raises(FormatError, match=why):
        pteron.check(data)
