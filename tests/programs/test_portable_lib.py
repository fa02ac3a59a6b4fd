"""`pteron.runtime.portable_lib` beside ExecuTorch's own, on the same files, and the switch between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.extension.pybindings import portable_lib as theirs
from torch import nn

import pteron.runtime
from pteron.runtime import portable_lib as ours


class Sums(nn.Module):
    """A state, a number as output, and results of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[Any, ...]:
        self.total.add_(x.sum(0))
        return self.layer(x), self.total * 2, ids + 1


INPUTS = [(torch.randn(n, 3), torch.arange(n)) for n in (4, 2, 1)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    n = torch.export.Dim("n", min=1, max=4)
    program = torch.export.export(Sums().eval(), INPUTS[0], dynamic_shapes=({0: n}, {0: n}))
    constants = {"get_max_seq_len": 32, "use_kv_cache": True, "get_eos_ids": [2, 3]}
    edge = to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()], constant_methods=constants
    )
    made = tmp_path_factory.mktemp("portable_lib") / "sums.pte"
    made.write_bytes(edge.to_executorch().buffer)
    return made


def same(ours: list[Any], theirs: list[Any]) -> None:
    assert list(map(type, ours)) == list(map(type, theirs))
    for got, want in zip(ours, theirs, strict=True):
        if isinstance(want, torch.Tensor):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)
        else:
            assert got == want


@pytest.mark.parametrize("from_buffer", [False, True])
def test_modules_give_the_same(path: Path, from_buffer: bool) -> None:
    data = path.read_bytes()  # ExecuTorch's module borrows it

    def opened(library: Any) -> Any:
        if from_buffer:
            return library._load_for_executorch_from_buffer(data)
        return library._load_for_executorch(str(path))

    mine, real = opened(ours), opened(theirs)
    assert sorted(mine.method_names()) == sorted(real.method_names())
    for name in ("get_max_seq_len", "use_kv_cache", "get_eos_ids"):
        same(mine.run_method(name), real.run_method(name))
    for inputs in INPUTS:
        same(mine.forward(inputs), real.forward(inputs))
    same(mine(INPUTS[0]), real(INPUTS[0]))
    same(mine.run_method("forward", INPUTS[1]), real.run_method("forward", INPUTS[1]))
    assert repr(mine.method_meta("forward")) == repr(real.method_meta("forward"))
    assert mine.has_etdump() == real.has_etdump()
    for module in (mine, real):
        with pytest.raises(RuntimeError):
            module.run_method("missing")
        with pytest.raises(RuntimeError):
            module.forward((torch.randn(5, 3), torch.arange(5)))  # above the bound


def test_programs_and_methods_give_the_same(path: Path) -> None:
    mine, real = ours._load_program(str(path)), theirs._load_program(str(path))
    assert mine.num_methods() == real.num_methods()
    names = [[p.get_method_name(n) for n in range(p.num_methods())] for p in (mine, real)]
    assert names[0] == names[1]
    first, second = mine.load_method("forward"), real.load_method("forward")
    assert repr(first.method_meta()) == repr(second.method_meta())
    for inputs in INPUTS:
        for method in (first, second):
            method.set_inputs(inputs)
            method.execute()
        same(first.get_outputs(), second.get_outputs())
    same(first.call(INPUTS[0]), second.call(INPUTS[0]))


def test_an_etdump_is_written(path: Path, tmp_path: Path) -> None:
    module = ours._load_for_executorch(str(path), enable_etdump=True, debug_buffer_size=10_000)
    assert module.has_etdump()
    module.forward(INPUTS[0])
    module.write_etdump_result_to_file(str(tmp_path / "dump"), str(tmp_path / "data"))
    assert (tmp_path / "dump").stat().st_size and (tmp_path / "data").stat().st_size


def test_bundled_programs(path: Path) -> None:
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.core import BundledProgram
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

    good = theirs._load_for_executorch(str(path)).forward(INPUTS[0])
    bad = [good[0] + 1, *good[1:]]
    cases = [MethodTestCase(INPUTS[0], tuple(outputs)) for outputs in (good, bad)]
    bundle = BundledProgram(None, [MethodTestSuite("forward", cases)], str(path))
    module = ours._load_bundled_program_from_buffer(serialize_from_bundled_program_to_flatbuffer(bundle))
    made = module.verify_result_with_bundled_expected_output("forward", 0, 1e-4, 1e-5)
    torch.testing.assert_close(made[0], good[0])
    with pytest.raises(RuntimeError, match="output 0 of test 1 of 'forward' differs by up to 1"):
        module.verify_result_with_bundled_expected_output("forward", 1, 1e-4, 1e-5)
    again = ours._load_for_executorch_from_bundled_program(module)
    assert len(again.forward(INPUTS[0])) == 3
    with pytest.raises(RuntimeError, match="not a bundled program"):
        ours._load_bundled_program_from_buffer(path.read_bytes())


def test_every_name_of_executorch_is_there() -> None:
    from executorch.extension.pybindings import _C

    missing = {name for name in dir(_C) if not name.startswith("__")} - set(dir(ours))
    assert missing <= {"HierarchicalAllocator", "PyDataLoader"}, missing
    assert ours._is_available("XnnpackBackend") and not ours._is_available("QnnBackend")
    assert "aten::add.out" in ours._get_operator_names()


def test_the_switch_can_be_undone(path: Path) -> None:
    with pteron.runtime.install():
        from executorch.extension.llm.runner import TextLLMRunner
        from executorch.extension.pybindings.portable_lib import _load_for_executorch
        from executorch.runtime import Runtime

        module = _load_for_executorch(str(path))
        assert isinstance(module, ours.ExecuTorchModule)
        assert Runtime is pteron.runtime.Runtime and TextLLMRunner.__module__ == "pteron.runtime.llm_runner"
        np.testing.assert_array_equal(module.forward(INPUTS[0])[2], INPUTS[0][1] + 1)
    from executorch.extension.pybindings.portable_lib import _load_for_executorch as restored

    assert restored is theirs._load_for_executorch
