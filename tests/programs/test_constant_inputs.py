"""Numbers that are inputs of the module, but constants in the exported program."""

import executorch.runtime as theirs
import numpy as np
import pytest
import torch
from torch import nn

import pteron
import pteron.runtime as ours
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_method
from tests.support.cli import pteron_cli

X = torch.ones(2, 3)
GOOD = [(3, 2.5, True), (np.int64(3), np.float32(2.5), True)]
BAD = [
    ((4, 2.5, True), "input1 was exported as the constant 3, got 4"),
    ((3, 2.0, True), r"input2 was exported as the constant 2\.5, got 2\.0"),
    ((3, 2.5, False), "input3 was exported as the constant True, got False"),
    (("3", 2.5, True), "input1 was exported as the constant 3, got '3'"),
    ((3, None, True), r"input2 was exported as the constant 2\.5, got None"),
    ((np.arange(3), 2.5, True), r"input1 was exported as the constant 3, got array"),
]


class Scaled(nn.Module):
    def forward(self, x, k: int, f: float, b: bool):
        return (x + k) * f if b else x


@pytest.fixture(scope="module")
def program(exported):
    return exported("constant_inputs", lambda: (Scaled(), (X, 3, 2.5, True)), partitioner=False)


@pytest.fixture(scope="module")
def loaded(program, device):
    with pteron.load(program, device=device) as loaded:
        yield loaded


class Chosen(nn.Module):
    def forward(self, x, mode: str, y=None):
        z = 2 * x if mode == "double" else 3 * x
        return z if y is None else z + y


@pytest.mark.parametrize("numbers", GOOD)
def test_the_constants_themselves_are_accepted(loaded, numbers):
    np.testing.assert_array_equal(loaded(X.numpy(), *numbers), np.full((2, 3), 10, np.float32))


@pytest.mark.parametrize(("numbers", "why"), BAD)
def test_other_values_are_refused_and_change_nothing(loaded, numbers, why):
    with pytest.raises(pteron.InputError, match=f"{why}.*export the program again"):
        loaded(X.numpy(), *numbers)
    test_the_constants_themselves_are_accepted(loaded, GOOD[0])


@pytest.mark.parametrize("numbers", [GOOD[0], *(bad for bad, _ in BAD[:3])])
def test_executorch_decides_the_same(program, numbers):
    outcomes = []
    for runtime in (theirs.Runtime, ours.Runtime):
        method = runtime.get().load_program(program).load_method("forward")
        try:
            outcomes.append(method.execute([X, *numbers])[0].tolist())
        except RuntimeError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


def test_inputs_and_reports_show_the_constants(loaded, program, tmp_path):
    assert [info.fixed for info in loaded.method().inputs] == [None, 3, 2.5, True]
    assert not any(info.is_integer for info in loaded.method().inputs)
    shown = repr(loaded.method())
    for text in ("input1: int = 3", "input2: float = 2.5", "input3: bool = True"):
        assert text in shown
    path = tmp_path / "constants.pte"
    path.write_bytes(program)
    with ProgramFile.open(path) as file:
        assert [port.value for port in inspect_method(file, "forward").inputs] == [None, 3, 2.5, True]
    assert "always 3" in pteron_cli("inspect", path).output


def test_a_text_and_a_missing_input_are_constants(device):
    """A program that was exported without an input cannot use one."""
    made = pteron.export(Chosen(), (X, "double", None), partition=False)
    with pteron.load(made.buffer, device=device) as loaded:
        assert [str(info) for info in loaded.method().inputs[1:]] == ["mode: str = 'double'", "y: None"]
        for values, why in (
            (("triple", None), "mode was exported as the constant 'double', got 'triple'"),
            ((None, None), "mode was exported as the constant 'double', got None"),
            (("double", X), r"y was exported as the constant None, got tensor\("),
            (("double", 7), "y was exported as the constant None, got 7"),
        ):
            with pytest.raises(pteron.InputError, match=why):
                loaded(X, *values)
        assert torch.equal(loaded(X, "double", None), 2 * X)
        with pytest.raises(pteron.InputError, match="mode: str = 'double', y: None"):
            loaded(X)
        whole = [result for result in pteron.verify(loaded).results if result.op.startswith("output")]
        assert [result.reference for result in whole] == ["ExecuTorch"]


def test_executorch_refuses_a_value_for_a_missing_input(exported):
    data = exported("missing_input", lambda: (Chosen(), (X, "double", None)), partitioner=False)
    for runtime in (theirs.Runtime, ours.Runtime):
        method = runtime.get().load_program(data).load_method("forward")
        with pytest.raises((RuntimeError, pteron.InputError)):
            method.execute([X, None, X])
