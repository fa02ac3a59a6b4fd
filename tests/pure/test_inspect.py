"""`pteron.tools.inspect.inspect` on files, without a GPU."""

import subprocess
import sys

import pytest

from pteron.compiler.pipeline import lower
from pteron.errors import InputError, UnsupportedError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_method, sample_ranges
from tests.support import DATA


def method(name, live=None, **options):
    with ProgramFile.open(DATA / f"{name}.pte") as file:
        return inspect_method(file, "forward", live, **options)


def patched(name, old, new):
    """A fixture with one of its strings replaced by one of the same length."""
    assert len(old) == len(new)
    data = (DATA / f"{name}.pte").read_bytes()
    assert old in data
    return ProgramFile.open(data.replace(old, new))


def ports(infos):
    return [(port.name, port.dtype, port.max_shape, port.dynamic_dims) for port in infos]


# -- what the file says ---------------------------------------------------------------------------


def test_inputs_outputs_and_dynamic_dimensions():
    info = method("dyn_rms")
    assert ports(info.inputs) == [("input0", "float32", (1, 1, 128, 64), (2,))]
    assert ports(info.outputs) == [("output0", "float32", (1, 1, 128, 64), (2,))]
    assert info.runs and not info.nodes and not info.is_constant


def test_an_output_whose_size_is_rounded_is_dynamic():
    info = method("dyn_conv1d")  # stride 2: 16 and 15 elements give 7
    assert ports(info.outputs) == [("output0", "float32", (1, 4, 7), (2,))]


def test_only_the_dimensions_that_may_vary_are_dynamic():
    assert [port.dynamic_dims for port in method("sdpa_dyn").inputs] == [(1,), (1,), (1,), (), ()]


def test_the_range_of_indices():
    (ids,) = method("emb_dyn").inputs
    assert (ids.dtype, ids.values) == ("int64", (0, 63))


def test_operators_by_place():
    info = method("sdpa_dyn")
    counts = {(op.name, op.place): op.count for op in info.operators}
    assert counts == {
        ("aten::copy_", "outside"): 2,
        ("sym_size.int", "delegate"): 1,
        ("sdpa_with_kv_cache.default", "delegate"): 1,
    }
    assert all(op.supported for op in info.operators)
    (delegate,) = info.delegates
    assert (delegate.backend, delegate.calls, delegate.supported) == ("VulkanBackend", 1, True)


def test_constants_are_counted_and_the_largest_come_first():
    constants = method("emb_dyn").constants
    assert (constants.count, constants.nbytes) == (2, 64 * 32 + 64 * 2 * 4)
    assert [(c.dtype, c.shape, c.nbytes) for c in constants.largest] == [
        ("uint8", (64, 32), 2048),
        ("float32", (64, 2), 512),
    ]


def test_memory_equals_the_memory_plan():
    memory = method("dyn_rms").memory
    assert (memory.activations, memory.buffers, memory.tensors) == (2 * 128 * 64 * 4, 2, 2)
    assert memory.staging == 128 * 64 * 4
    shared = method("sdpa_dyn").memory
    assert shared.activations < shared.unshared and shared.buffers < shared.tensors


# -- live shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("dyn_rms", 7, (1, 1, 7, 64)),
        ("dyn_rms", 128, (1, 1, 128, 64)),
        ("emb_dyn", 3, (3, 64)),
        ("dyn_conv1d", 5, (1, 4, 2)),
        ("sdpa_dyn", 9, (1, 9, 8, 16)),
    ],
)
def test_one_size_for_all_dynamic_dimensions(name, size, expected):
    shapes = [shape for node in method(name, size=size).nodes for shape in node.outputs.values()]
    assert expected in shapes


def test_nodes_show_kernel_parameters_grid_and_bindings():
    (node,) = method("dyn_rms", {"input0": (1, 1, 7, 64)}).nodes
    (dispatch,) = node.dispatches
    assert (node.operator, node.outputs) == ("et_vk.rms_norm.default", {"v1": (1, 1, 7, 64)})
    assert dispatch.kernel == "rms_norm" and len(dispatch.grid) == 3
    assert (dispatch.params["rows"], dispatch.params["width"]) == (7, 64)
    assert dispatch.bindings["x"] == "v0: float32[1, 1, 7, 64]"


def test_a_symint_shows_its_value():
    (node, *_) = method("sdpa_dyn", size=9).nodes
    assert (node.operator, list(node.outputs.values()), node.dispatches) == ("sym_size.int", [9], ())


@pytest.mark.parametrize(
    ("name", "live", "message"),
    [
        ("dyn_rms", {"input1": (1,)}, "no input 'input1'; it has: input0"),
        ("dyn_rms", {"input0": (1, 7, 64)}, "expected 4 dimensions"),
        ("dyn_rms", {"input0": (1, 1, 129, 64)}, "dimension 2 is 129.*at most 128"),
        ("sdpa_dyn", {"input0": (1, 7, 8, 16)}, "sdpa_with_kv_cache"),  # q, k and v no longer agree
    ],
)
def test_bad_shapes_are_refused_by_name(name, live, message):
    with pytest.raises(InputError, match=message):
        method(name, live)


def test_a_size_beyond_the_maximum_is_refused():
    with pytest.raises(InputError, match="is 200, expected a size from 1 to 128"):
        method("dyn_rms", size=200)


# -- files that cannot run ------------------------------------------------------------------------


def test_a_missing_operator_is_named():
    with patched("dyn_rms", b"et_vk.rms_norm.default", b"et_vk.rms_morn.default") as file:
        info = inspect_method(file, "forward")
        assert not info.runs and info.memory is None
        assert [(op.name, op.supported) for op in info.operators] == [("et_vk.rms_morn.default", False)]
        assert "et_vk.rms_morn.default" in info.problems[0]
        assert info.inputs[0].max_shape == (1, 1, 128, 64)
        assert info.constants.count == 1
        with pytest.raises(UnsupportedError, match="rms_morn"):
            inspect_method(file, "forward", size=7)


def test_a_foreign_backend_is_named():
    with patched("dyn_rms", b"VulkanBackend", b"SecretBackend") as file:
        info = inspect_method(file, "forward")
    assert not info.runs and "SecretBackend" in info.problems[0]
    assert [(d.backend, d.supported) for d in info.delegates] == [("SecretBackend", False)]
    assert info.operators == ()


# -- the rest -------------------------------------------------------------------------------------


def test_no_gpu_library_and_no_numpy_are_needed():
    script = """
import sys
sys.modules["wgpu"] = sys.modules["numpy"] = None  # importing either fails
from pteron.tools.inspect.inspect import inspect_method
from pteron.pte.file import ProgramFile
with ProgramFile.open(sys.argv[1]) as file:
    assert inspect_method(file, "forward", size=7).nodes
"""
    subprocess.run([sys.executable, "-c", script, DATA / "dyn_rms.pte"], check=True, timeout=120)


def test_random_integers_are_in_the_valid_range():
    with ProgramFile.open(DATA / "emb_dyn.pte") as file:
        assert sample_ranges(lower(file).unfused["forward"]) == {"input0": (0, 63)}
