"""`pteron.runtime.executorch` beside `executorch.runtime`, on the same files."""

import io
import subprocess
import sys
from pathlib import Path

import executorch.runtime as theirs
import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

import pteron.runtime.executorch as ours
from tests.support import DATA

FILES = sorted(DATA.glob("*.pte"))


class Accumulator(torch.nn.Module):
    """Inputs and outputs that are not tensors, a named buffer, and an input of each common dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x, n: int, ids, mask):
        self.total.add_(x.sum(0))
        return x + n, self.total * 2, 5, ids + 1, mask.logical_not()


@pytest.fixture(scope="module")
def portable(tmp_path_factory) -> Path:
    """A program with no delegate at all."""
    batch = torch.export.Dim("batch", min=1, max=8)
    args = (torch.ones(2, 3), 3, torch.arange(4), torch.ones(2, dtype=torch.bool))
    exported = torch.export.export(Accumulator(), args, dynamic_shapes=({0: batch}, None, None, None))
    path = tmp_path_factory.mktemp("portable") / "portable.pte"
    config = ExecutorchBackendConfig(emit_mutable_buffer_names=True)
    path.write_bytes(to_edge_transform_and_lower(exported).to_executorch(config).buffer)
    return path


def tensor_facts(info):
    return info.sizes(), info.dtype(), info.is_memory_planned(), info.nbytes()


def all_facts(call, count):
    """The facts for each index from -1 to one beyond the end, or the error."""
    facts = []
    for index in range(-1, count + 1):
        try:
            facts.append(tensor_facts(call(index)))
        except (IndexError, TypeError) as error:
            facts.append(type(error))
    return facts


def method_facts(meta):
    return {
        "name": meta.name(),
        "inputs": all_facts(meta.input_tensor_meta, meta.num_inputs()),
        "outputs": all_facts(meta.output_tensor_meta, meta.num_outputs()),
        "attributes": all_facts(meta.attribute_tensor_meta, meta.num_attributes()),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_metadata_is_the_same(path):
    real, twin = theirs.Runtime.get().load_program(path), ours.Runtime.get().load_program(path)
    assert twin.method_names == real.method_names
    assert method_facts(twin.metadata("forward")) == method_facts(real.metadata("forward"))
    assert repr(twin.metadata("forward")) == repr(real.metadata("forward"))


def test_metadata_of_values_that_are_not_tensors_is_the_same(portable):
    real, twin = (runtime.get().load_program(portable) for runtime in (theirs.Runtime, ours.Runtime))
    facts = method_facts(twin.metadata("forward"))
    assert facts == method_facts(real.metadata("forward"))
    assert facts["inputs"][2] is IndexError  # the integer
    assert facts["inputs"][1][0] == (8, 3)  # the largest shape
    assert facts["attributes"][1][0] == (3,)  # the buffer


def test_verification_has_the_same_members():
    real = {name: int(member) for name, member in theirs.Verification.__members__.items()}
    assert {name: int(member) for name, member in ours.Verification.__members__.items()} == real


def test_data_may_be_a_path_bytes_or_a_file():
    path = DATA / "dyn_rms.pte"
    data = path.read_bytes()
    for source in (path, str(path), data, bytearray(data), io.BytesIO(data)):
        assert ours.Runtime.get().load_program(source).method_names == {"forward"}


@pytest.mark.parametrize("data", [123, None, memoryview(b"ET12"), ["model.pte"]])
def test_other_data_is_refused_with_the_same_message(data):
    messages = []
    for runtime in (theirs.Runtime, ours.Runtime):
        with pytest.raises(TypeError) as refused:
            runtime.get().load_program(data)
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("data", [b"12345", b"", "no/such/file.pte"])
def test_a_file_that_cannot_be_opened_is_a_runtime_error_in_both(data):
    for runtime in (theirs.Runtime, ours.Runtime):
        with pytest.raises(RuntimeError):
            runtime.get().load_program(data)


def test_unknown_methods_raise_the_same_error():
    for runtime in (theirs.Runtime, ours.Runtime):
        program = runtime.get().load_program(DATA / "dyn_rms.pte")
        with pytest.raises(KeyError, match="nope"):
            program.load_method("nope")
        with pytest.raises(RuntimeError, match="method meta"):
            program.metadata("nope")
        with pytest.raises(RuntimeError, match="No etdump found"):
            program.write_etdump_result_to_file("etdump", "debug")


def test_the_error_for_an_unknown_method_lists_the_methods():
    with pytest.raises(KeyError, match="forward"):
        ours.Runtime.get().load_program(DATA / "dyn_rms.pte").load_method("nope")


def test_registries():
    runtime = ours.Runtime.get()
    assert runtime is ours.Runtime.get()
    assert runtime.backend_registry.registered_backend_names == ["VulkanBackend", "XnnpackBackend"]
    assert runtime.backend_registry.is_available("VulkanBackend")
    assert not runtime.backend_registry.is_available("CoreMLBackend")
    assert "aten.add.Tensor" in runtime.operator_registry.operator_names


class Branches(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2, x + x


@pytest.fixture(scope="module")
def branches(exported):
    rows = torch.export.Dim("rows", min=1, max=16)
    data = exported("twin_branches", lambda: (Branches(), (torch.randn(4, 5),), ({0: rows},)))
    return ours.Runtime.get().load_program(data)


@pytest.mark.parametrize("rows", [16, 1, 7])
def test_torch_in_torch_out(branches, rows):
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(rows))
    outputs = branches.load_method("forward").execute([x])
    assert isinstance(outputs, list)
    for out, expected in zip(outputs, Branches()(x), strict=True):
        torch.testing.assert_close(out, expected, rtol=0, atol=0)


def test_numpy_in_numpy_out_and_outputs_are_copies(branches):
    forward = branches.load_method("forward")
    x = np.float32([[1, -2, 3, -4, 5]])
    first = forward.execute((x,))
    forward.execute((x * 10,))
    assert all(isinstance(out, np.ndarray) for out in first)
    np.testing.assert_array_equal(first[0], [[2, 0, 6, 0, 10]])
    np.testing.assert_array_equal(first[1], x * 2)


def test_a_method_is_loaded_once_and_programs_share_the_device(branches):
    forward = branches.load_method("forward")
    assert forward is branches.load_method("forward")
    assert forward.metadata.name() == "forward"
    other = ours.Runtime.get().load_program(DATA / "dyn_rms.pte").load_method("forward")
    assert other._method.device is forward._method.device


def test_bad_inputs_are_runtime_errors_as_in_executorch(branches):
    forward = branches.load_method("forward")
    for bad in ([], [torch.zeros(17, 5)], [torch.zeros(4, 5, dtype=torch.int32)]):
        with pytest.raises(RuntimeError, match="input"):
            forward.execute(bad)
    assert forward.execute([torch.zeros(2, 5)])[0].shape == (2, 5)


def test_the_runtime_needs_no_torch():
    script = """
import sys, numpy as np
from pteron.runtime.executorch import Runtime
method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
(out,) = method.execute([np.arange(3)])
assert isinstance(out, np.ndarray) and out.shape == (3, 64)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, DATA / "emb_dyn.pte"], check=True, timeout=120)


@pytest.mark.parametrize("rows", [(8, 2), (1, 8, 3)])
def test_a_program_without_delegates_gives_the_same_results_in_both(portable, rows):
    """Integer inputs and outputs, a mutable buffer, and every dtype, at several live shapes."""
    programs = [runtime.get().load_program(portable) for runtime in (theirs.Runtime, ours.Runtime)]
    real, twin = (program.load_method("forward") for program in programs)
    for step, count in enumerate(rows):
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(step))
        inputs = [x, 3, torch.arange(4) * step, torch.tensor([True, step == 0])]
        for expected, out in zip(real.execute(inputs), twin.execute(inputs), strict=True):
            assert type(out) is type(expected)
            torch.testing.assert_close(out, expected)
