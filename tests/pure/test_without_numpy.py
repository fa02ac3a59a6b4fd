"""The core needs neither numpy nor wgpu. Without numpy, arrays are converted by the same rules."""

from __future__ import annotations

import subprocess
import sys
from array import array
from typing import Any

import numpy as np
import pytest

from pteron.compiler.ir.dtypes import HOST_TYPES, DType
from pteron.compiler.ir.live import ContentRule
from pteron.compiler.ir.values import BatchNorm, Constant, Element, Folded, Graph, Joined, Tensor
from pteron.engine.arrays import HostArray, numpy_arrays, plain_arrays
from pteron.errors import InputError, PteronError
from pteron.pte.bytesource import ByteSource
from tests.support import DATA

SCRIPT = """
import asyncio, sys
for name in ("numpy", "wgpu"):
    sys.modules[name] = None  # importing it fails
import pteron
from pteron.engine.devices.recording import RecordingDevice, Submit
from pteron.compiler.ir.dtypes import host_itemsize
from pteron.compiler.ir.values import numel

def zeros(dtype, shape):
    return pteron.HostArray(bytes(numel(shape) * host_itemsize(dtype)), dtype, shape)

async def main():
    for name in sys.argv[1:]:
        device = RecordingDevice()
        program = await pteron.load_async(name, device=device)
        method = await program.method()
        for size in (5, 3, 5):
            y = await method(*[zeros(info.dtype, info.shape_at(size)) for info in method.inputs])
            assert y.shape == method.live_shapes[method.outputs[0].name]
            assert isinstance(device.events[-1], Submit) and device.events[-1].commands
        pteron.load(name, device=RecordingDevice()).method()
        pteron.check(name)

asyncio.run(main())
print(pteron.HostArray([[1, 2], [3, 4]], "float32").tolist())
"""


def test_a_program_is_loaded_planned_and_called_without_numpy_and_wgpu() -> None:
    files = [str(DATA / name) for name in ("dyn_rms.pte", "dyn_conv1d.pte", "emb_dyn.pte")]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[1.0, 2.0], [3.0, 4.0]]\n"


TYPES = sorted({name for name, _ in HOST_TYPES.values()} - {"bfloat16"})
GPU_TYPES = dict(HOST_TYPES.values())
VALUES: list[Any] = [
    np.array([[0, 1, 2], [3, 100, 127]]),
    np.array([-1, 0, 1]),
    np.array([2**31 - 1, -(2**31), 2**31]),
    np.array([[0.5, -2.0], [1e30, 1e300]]),
    np.array([np.inf, -np.inf, np.nan]),
    np.array([1e5, 7e4]),
    np.zeros((2, 0, 3)),
]


def outcome(function: Any) -> Any:
    """The shape and bytes of an array, or the error."""
    try:
        array = function()
    except InputError as error:
        return str(error).partition(": pass ")[0].partition(": convert ")[0]
    return tuple(array.shape), array.tobytes() if isinstance(array, np.ndarray) else bytes(array.data)


@pytest.mark.parametrize("host_type", [*TYPES, "bfloat16"])
@pytest.mark.parametrize("given", TYPES)
def test_inputs_are_accepted_and_refused_by_the_same_rules(given: str, host_type: str) -> None:
    for values in VALUES:
        with np.errstate(all="ignore"):
            x = np.ascontiguousarray(values.astype(given))
        plain = HostArray(x.tobytes(), given, x.shape)
        want = outcome(lambda x=x: numpy_arrays.to_gpu(x, host_type, GPU_TYPES[host_type], "x"))
        got = outcome(lambda p=plain: plain_arrays.to_gpu(p, host_type, GPU_TYPES[host_type], "x"))
        assert got == want


@pytest.mark.parametrize("host_type", [*TYPES, "bfloat16"])
@pytest.mark.parametrize("scalar", [True, 3, 0.25, 2.0**127])
def test_scalars_are_accepted_and_refused_by_the_same_rules(scalar: Any, host_type: str) -> None:
    dtype = GPU_TYPES[host_type]
    want = outcome(lambda: numpy_arrays.to_gpu(numpy_arrays.read(scalar, "x"), host_type, dtype, "x"))
    got = outcome(lambda: plain_arrays.to_gpu(plain_arrays.read(scalar, "x"), host_type, dtype, "x"))
    assert got == want


@pytest.mark.parametrize("host_type", [*TYPES, "bfloat16"])
def test_outputs_have_the_same_bytes(host_type: str) -> None:
    dtype = GPU_TYPES[host_type]
    data = np.array([0, 1, 255, 2**31, 2**32 - 1, 0x3F80, 0x7FC00000, 5], np.uint32).view(np.uint8)
    if dtype is DType.bool:
        data = data & 1
    raw = memoryview(data.tobytes())
    count = len(raw) // dtype.itemsize // 2
    want = numpy_arrays.from_gpu(raw, dtype, host_type, (2, count))
    got = plain_arrays.from_gpu(raw, dtype, host_type, (2, count))
    assert got.shape == want.shape and got.dtype == want.dtype.name
    np.testing.assert_array_equal(np.asarray(got), want)
    np.testing.assert_array_equal(np.array(got.tolist(), want.dtype), want)
    assert plain_arrays.first(got, 1).tolist() == got.tolist()[:1] or np.isnan(want).any()


def constant(graph: Graph, values: Any, host_type: str, dtype: DType, order: tuple[int, ...] = ()) -> Tensor:
    """A constant that is stored with its dimensions in another order."""
    stored = np.ascontiguousarray(values.transpose(order) if order else values)
    region = ByteSource(stored.tobytes()).region()
    return graph.tensor(dtype, values.shape, "weight", Constant(region, host_type, order))


@pytest.mark.parametrize(
    ("host_type", "dtype"),
    [("float32", DType.float32), ("int64", DType.int32), ("float64", DType.float32), ("int8", DType.int8)],
)
@pytest.mark.parametrize("order", [(), (0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_constants_are_converted_to_the_same_bytes(
    host_type: str, dtype: DType, order: tuple[int, ...]
) -> None:
    values = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(host_type)
    if host_type == "float64":
        values[0, 0, 0, 0] = -1e300
    tensor = constant(Graph("g"), values, host_type, dtype, order)
    with np.errstate(over="ignore"):
        want = numpy_arrays.convert_constant(tensor)
        assert bytes(want) == values.astype(dtype.label).tobytes()
    assert plain_arrays.convert_constant(tensor) == want


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joined_constants_are_converted_to_the_same_bytes(axis: int) -> None:
    graph = Graph("g")
    shapes = [[2, 3, 4], [2, 3, 4]]
    shapes[1][axis] += 1
    arrays = [np.random.default_rng(0).random(shape).astype(np.float32) for shape in shapes]
    parts = tuple(constant(graph, a, "float32", DType.float32, (2, 0, 1)) for a in arrays)
    whole = np.concatenate(arrays, axis)
    joined = graph.tensor(DType.float32, whole.shape, "all", Joined(parts, axis))
    assert plain_arrays.convert_constant(joined) == numpy_arrays.convert_constant(joined) == whole.tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("is_whole", [False, True])
def test_folded_norms_are_converted_to_the_same_bytes(axis: int, is_added: bool, is_whole: bool) -> None:
    graph, random = Graph("g"), np.random.default_rng(0)

    def tensor(*shape: int) -> tuple[Tensor, Any]:
        values = random.random(shape).astype(np.float32)
        return constant(graph, values, "float32", DType.float32), values.astype(np.float64)

    (mean, m), (variance, v), (weight, w), (bias, b) = (tensor(3) for _ in range(4))
    shape = [2, 2, 2]
    shape[axis] = 3
    source, s = tensor(*((3,) if is_added else shape))
    norm = BatchNorm(weight if is_whole else None, bias if is_whole else None, mean, variance, 0.1)
    factor = (w if is_whole else 1) / np.sqrt(v + 0.1)
    along = [3 if d == axis else 1 for d in range(3)]
    if not is_whole:
        source, s = None, np.zeros(3) if is_added else np.ones(along)  # type: ignore[assignment]
    added = (s - m) * factor + (b if is_whole else 0) if is_added else None
    want = s * factor.reshape(along) if added is None else added
    folded = graph.tensor(
        DType.float32, want.shape, "folded", Folded(source, axis * (not is_added), norm, is_added)
    )
    made = numpy_arrays.convert_constant(folded)
    assert np.allclose(np.frombuffer(made, np.float32).reshape(want.shape), want, 1e-6)
    assert plain_arrays.convert_constant(folded) == made


def test_integers_beyond_32_bits_are_refused_in_constants() -> None:
    tensor = constant(Graph("g"), np.array([1, 2**40]), "int64", DType.int32)
    for library in (numpy_arrays, plain_arrays):
        with pytest.raises(PteronError, match="constant weight has integers beyond 32 bits"):
            library.convert_constant(tensor)


@pytest.mark.parametrize(
    ("dim", "index"), [(-1, 4), (-1, -6), (-1, -7), (0, 1), (1, -1), (1, 2), (1, 3), (-1, 6), (2, 0)]
)
def test_elements_are_read_by_the_same_rules(dim: int, index: int) -> None:
    graph = Graph("g")
    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    element = Element(graph.symint("n"), graph.tensor(DType.int32, (2, 3), "x"), dim, index)

    def read(library: Any, values: Any) -> Any:
        try:
            return library.read_element(element, values)
        except InputError as error:
            return str(error)

    assert read(plain_arrays, HostArray(x)) == read(numpy_arrays, x)


def test_indices_are_checked_by_the_same_rules() -> None:
    tensor = Graph("g").tensor(DType.int32, (2, 2), "ids")
    rule = ContentRule(tensor, 0, 9, "an index")
    messages = []
    for library, values in (
        (numpy_arrays, np.array([[1, 2], [10, 3]])),
        (plain_arrays, HostArray([[1, 2], [10, 3]])),
    ):
        with pytest.raises(InputError) as caught:
            library.check_contents(values, rule, "ids")
        messages.append(str(caught.value))
    assert messages[0] == messages[1] == "ids: element [1, 0] is 10, but an index must lie in 0..9"


def test_a_host_array_is_made_from_buffers_and_numbers() -> None:
    for value in (array("f", [0, 1, 2]), memoryview(array("f", [0, 1, 2])), HostArray([0, 1, 2], "float32")):
        read = plain_arrays.read(value, "x")
        assert (read.dtype, read.shape, read.tolist()) == ("float32", (3,), [0, 1, 2])
    assert HostArray(array("l", [1])).dtype == f"int{8 * array('l').itemsize}"
    assert HostArray(memoryview(bytes(range(8)))[::2]).tolist() == [0, 2, 4, 6]
    assert HostArray([[True], [False]]).dtype == "bool" and HostArray(5).shape == ()
    assert HostArray(bytes(8), "float32").shape == (2,)
    assert HostArray(bytes(0), "float32", (3, 0)).tolist() == [[], [], []]
    assert np.asarray(HostArray([[1, 2]], "int32")).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], "float31"), "dtype is 'float31'"),
        (([[1, 2], [3]],), "rows of equal length"),
        (([1, 2**40], "int32"), "do not fit int32"),
        ((bytes(7), "float32"), r"shape \[1\] and dtype float32 has 4 bytes, got 7"),
        ((array("f", [1, 2]), None, (3,)), r"shape \[3\] and dtype float32 has 12 bytes, got 8"),
        ((array("f", [1, 2]), "int32"), "expected a buffer of int32 or of bytes, got format 'f'"),
    ],
)
def test_a_host_array_refuses_what_does_not_fit(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        HostArray(*arguments)
