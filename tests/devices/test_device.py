"""What `Device` promises, on every implementation of it."""

import asyncio
import threading
from functools import partial

import numpy as np
import pytest

import pteron
from pteron.compiler.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, WIDE
from pteron.engine.devices.device import LIMITS, TRUSTED
from pteron.engine.staging import read_back
from tests.support.faults import lock_is_free, lose

ADD_ONE = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { x[id.x] = x[id.x] + 1u; }
"""
DOUBLE = ADD_ONE.replace("x[id.x] + 1u", "x[id.x] * 2u")
SCALE = """
struct Params { factor: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { y[id.x] = p.factor * x[id.x]; }
"""
COUNT = 256
NBYTES = 4 * COUNT

real = pytest.mark.usefixtures("real")


def as_integers(data):
    return np.frombuffer(data, np.int32).copy()


def contents(device, buffer, count=COUNT):
    return read_back(device, buffer, 4 * count, as_integers)


@pytest.fixture
def numbers(device):
    """A buffer with the numbers 0..255."""
    buffer = device.storage(NBYTES, "numbers")
    device.write(buffer, 0, np.arange(COUNT, dtype=np.int32))
    yield buffer
    device.free(buffer)


@pytest.fixture
def run(device, numbers):
    """`run(source)`: a command that changes all numbers."""
    kept = []

    def command(source, groups=COUNT):
        pipeline = device.pipeline(source, "kernel", ["read_write"])
        group = device.bind_group(pipeline, [(numbers, 0, NBYTES)], "group")
        kept.append((pipeline, group))
        return device.command(pipeline, group, (groups, 1, 1))

    return command


# -- what it is -------------------------------------------------------------------------------------


def test_it_says_what_it_is(device):
    assert isinstance(device.name, str) and device.name and isinstance(device.is_software, bool)
    assert set(LIMITS) <= set(device.limits)
    assert device.uniform_alignment == device.limits["min-uniform-buffer-offset-alignment"]
    assert device.largest_binding <= device.limits["max-buffer-size"]
    assert device.route_features <= {GPU, SOFTWARE, SUBGROUP, HALF, WIDE}
    assert len(device.route_features & {GPU, SOFTWARE}) == 1
    device.check_usable()


@real
def test_it_offers_the_wanted_features_after_a_reopen_too(device):
    few = pteron.open_device(device.adapter, features={GPU})
    again = few.reopen()
    assert few.route_features == again.route_features == {GPU}
    few.close()
    again.close()
    with pytest.raises(pteron.DeviceError, match=r"features: .* has no warp drive; it has "):
        pteron.open_device(device.adapter, features={GPU, "warp drive"})


# -- buffers ----------------------------------------------------------------------------------------


@real
def test_buffers_are_counted_until_they_are_freed_or_dropped(fresh):
    for make in (fresh.storage, fresh.uniform, fresh.staging):
        before, made = fresh.allocated_nbytes, fresh.allocations
        buffer = make(64, "counted")
        assert buffer.size == 64
        assert (fresh.allocated_nbytes - before, fresh.allocations - made) == (64, 1)
        fresh.free(buffer)
        assert fresh.allocated_nbytes == before
        make(64, "dropped")
        assert fresh.allocated_nbytes == before


@real
def test_a_new_buffer_is_zero(device):
    buffer = device.storage(NBYTES, "new")
    assert not contents(device, buffer).any()
    device.free(buffer)


@real
@pytest.mark.parametrize("nbytes", [1, 2, 3, 4, 5, 7, 8])
def test_writes_are_padded_to_words(device, numbers, nbytes):
    device.write(numbers, 8, b"\xff" * nbytes)
    padded = b"\xff" * nbytes + bytes(-nbytes % 4)
    wanted = np.arange(COUNT, dtype=np.int32)
    wanted[2 : 2 + len(padded) // 4] = np.frombuffer(padded, np.int32)
    np.testing.assert_array_equal(contents(device, numbers), wanted)


@real
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, partial(np.frombuffer, dtype=np.float32)])
def test_a_write_takes_any_bytes_and_keeps_none(device, numbers, make):
    raw = bytearray(b"12345678")
    device.write(numbers, 0, make(raw))
    raw[:] = bytes(8)
    assert contents(device, numbers, 2).tobytes() == b"12345678"


@real
def test_contents_at_the_creation(device):
    parts = [(0, b"abcd"), (8, b""), (12, np.array([7], np.int32)), (16, b"xyz")]
    buffer = device.constant(20, "constant", parts)
    assert contents(device, buffer, 5).tobytes() == b"abcd" + bytes(8) + b"\7\0\0\0xyz\0"
    device.free(buffer)


@real
def test_parts_are_cleared(device, numbers):
    other = device.storage(16, "other")
    device.write(other, 0, b"x" * 16)
    device.clear([(numbers, 4, 8), (other, 0, 16)])
    assert contents(device, numbers, 4).tolist() == [0, 0, 0, 3]
    assert contents(device, other, 4).tolist() == [0, 0, 0, 0]
    device.free(other)


def test_what_no_kernel_could_bind_is_refused(device):
    with pytest.raises(pteron.OutOfMemory, match=r"large needs [\d,]+ bytes, but .* binds at most"):
        device.storage(device.largest_binding + 4, "large")


# -- kernels ----------------------------------------------------------------------------------------


def test_a_text_is_compiled_once_in_any_number_of_threads(fresh):
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(fresh.pipeline(ADD_ONE, "one", ["read_write"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and len(set(map(id, made))) == 1 and fresh.compilations == 1


@real
@pytest.mark.parametrize("mark", ["", f"{TRUSTED}\n"], ids=["plain", "trusted"])
def test_a_text_with_a_mistake_is_refused_and_the_next_one_works(device, numbers, run, mark):
    for text in ("fn main( {", "@compute @workgroup_size(1) fn main() { let x = 1u + 1.5; }"):
        with pytest.raises(pteron.DeviceError, match=r"^kernel bad"):
            device.pipeline(mark + text, "bad", [])
    device.submit((), [run(mark + DOUBLE)], ())
    np.testing.assert_array_equal(contents(device, numbers), 2 * np.arange(COUNT))


@real
def test_workgroup_memory_beyond_the_limit_is_no_lack_of_memory(device):
    text = "var<workgroup> x: array<u32, 1000000>;\n@compute @workgroup_size(1) fn main() { x[0] = 1u; }"
    try:
        device.pipeline(text, "wide", [])
    except pteron.DeviceError as error:
        assert not isinstance(error, pteron.DeviceLost)


@real
def test_bindings_are_in_order_and_at_their_offsets(device, numbers):
    at = device.uniform_alignment
    result, params = device.storage(NBYTES, "result"), device.uniform(2 * at, "params")
    device.write(params, at, np.array([3, 0, 0, 0], np.int32))
    pipeline = device.pipeline(SCALE, "scale", ["read", "read_write", "uniform"])
    bound = [(numbers, 256, 512), (result, 0, 512), (params, at, 16)]
    group = device.bind_group(pipeline, iter(bound), "scale")
    device.submit((), [device.command(pipeline, group, (128, 1, 1))], ())
    np.testing.assert_array_equal(contents(device, result, 128), 3 * np.arange(64, 192))
    for buffer in (result, params):
        device.free(buffer)


# -- running ----------------------------------------------------------------------------------------


@real
def test_copies_and_kernels_run_in_order(device, numbers, run):
    source = device.storage(16, "source")
    device.write(source, 0, np.array([10, 20, 30, 40], np.int32))
    steps = [run(ADD_ONE), run(DOUBLE), run(DOUBLE), run(ADD_ONE, 1)]
    device.submit([(source, 4, numbers, 0, 8)], iter(steps), [(numbers, 0, source, 12, 4)])
    wanted = (np.arange(COUNT) + 1) * 4
    wanted[:2] = (20 + 1) * 4 + 1, (30 + 1) * 4
    np.testing.assert_array_equal(contents(device, numbers), wanted)
    assert contents(device, source, 4).tolist() == [10, 20, 30, wanted[0]]
    device.free(source)


@real
def test_a_write_is_seen_by_later_submissions_only(device, numbers, run):
    command, copy = run(ADD_ONE, 1), device.storage(16, "copy")
    for number in range(4):
        device.write(numbers, 0, np.array([10 * number], np.int32))
        device.submit((), [command], [(numbers, 0, copy, 4 * number, 4)])
    assert contents(device, copy, 4).tolist() == [1, 11, 21, 31]
    device.free(copy)


@real
def test_what_was_recorded_runs_when_it_is_submitted(device, numbers, run):
    copy, commands = device.storage(16, "copy"), [run(ADD_ONE)]
    recorded = device.record(iter(commands), iter([(numbers, 0, copy, 0, 16)]))
    device.write(numbers, 0, np.array([5, 6, 7, 8], np.int32))
    assert contents(device, copy, 4).tolist() == [0, 0, 0, 0]
    device.submit_recorded(recorded)
    assert contents(device, copy, 4).tolist() == [6, 7, 8, 9]
    assert isinstance(device.can_record, bool)
    device.free(copy)


def test_a_warm_up_tells_its_progress_or_nothing(device, run):
    commands, told = [run(ADD_ONE, 1), run(DOUBLE, 1)], []
    device.warm_up(commands)
    device.warm_up(commands, told.append)
    assert told in ([], [1, 2])
    device.wait()


@real
def test_an_error_is_raised_and_the_next_run_works(device, numbers):
    small = device.storage(16, "small")
    with pytest.raises(pteron.DeviceError, match=r"run: (?s:.*)overrun"):
        device.submit((), (), [(small, 0, numbers, 0, NBYTES)])
    with pytest.raises((pteron.DeviceError, ValueError)):
        device.write(small, 0, bytes(NBYTES))
    device.write(small, 0, np.array([7, 8, 9, 10], np.int32))
    assert contents(device, small, 4).tolist() == [7, 8, 9, 10]
    device.free(small)


@real
def test_every_dispatch_is_timed(device, run):
    if device.timer is None:
        pytest.skip("it has no clock")
    with device.timer() as watch:
        for count in (3, 1):
            device.submit((), [run(ADD_ONE)] * count, ())
            spans = watch.read()
            assert len(spans) == count and all(span.begin <= span.end for span in spans)
            assert [span.begin for span in spans] == sorted(span.begin for span in spans)
    assert lock_is_free(device)


# -- waiting ----------------------------------------------------------------------------------------


@real
def test_a_mapped_buffer_can_be_unmapped_at_any_time(device, numbers):
    staging = device.staging(NBYTES, "numbers")
    device.unmap(staging)  # it was never mapped
    submission = device.submit((), (), [(numbers, 0, staging, 0, NBYTES)])
    device.map(staging, NBYTES, submission)  # and nobody waits
    device.unmap(staging)
    submission = device.submit((), (), [(numbers, 0, staging, 0, NBYTES)])
    for count, timeout in ((COUNT, None), (2, 60), (COUNT, 60)):
        mapping = device.map(staging, 4 * count, submission)
        mapping.wait(timeout)
        np.testing.assert_array_equal(as_integers(mapping.view), np.arange(count))
        device.unmap(staging)
    device.free(staging)


@real
def test_a_buffer_is_mapped_once_at_a_time(device, numbers):
    staging = device.staging(NBYTES, "numbers")
    submission = device.submit((), (), [(numbers, 0, staging, 0, NBYTES)])
    device.map(staging, NBYTES, submission).wait(None)
    with pytest.raises(pteron.DeviceError, match="wait"):
        device.map(staging, NBYTES, submission).wait(None)
    device.unmap(staging)
    device.free(staging)


@real
def test_threads_wait_for_their_own_buffers(device):
    failures = []

    def read(seed):
        values = np.random.default_rng(seed).integers(0, 1000, COUNT).astype(np.int32)
        buffer = device.storage(NBYTES, "mine")
        for shift in range(20):
            device.write(buffer, 0, values + shift)
            if not np.array_equal(contents(device, buffer), values + shift):
                failures.append((seed, shift))
        device.free(buffer)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_waiting_in_an_event_loop(device, numbers):
    staging = device.staging(NBYTES, "staging")

    def read():
        mapping = device.map(staging, NBYTES, submission)
        mapping.wait(None)
        return len(mapping.view)

    async def wait():
        await device.settle()
        return await device.after(submission, read)

    submission = device.submit((), (), [(numbers, 0, staging, 0, NBYTES)])
    assert asyncio.run(wait()) == NBYTES
    device.unmap(staging)
    device.free(staging)


# -- its life ---------------------------------------------------------------------------------------


def test_a_closed_device_says_so_and_can_be_closed_and_reopened(fresh):
    buffer = fresh.storage(16, "left over")
    fresh.close()
    fresh.close()
    if fresh.adapter is not None:
        with pytest.raises(pteron.PteronError, match="the device is closed"):
            fresh.check_usable()
    fresh.free(buffer)
    again = asyncio.run(fresh.reopen_async())
    again.check_usable()
    assert again.route_features == fresh.route_features and again.limits == fresh.limits
    again.close()


@real
def test_a_lost_device_is_not_any_error(fresh):
    buffer, staging = fresh.storage(16, "x"), fresh.staging(16, "y")
    pipeline = fresh.pipeline(ADD_ONE, "one", ["read_write"])
    with pytest.raises(pteron.DeviceError) as other:
        fresh.submit((), (), [(buffer, 0, staging, 0, 64)])
    assert not isinstance(other.value, pteron.DeviceLost)
    lose(fresh)
    for attempt in (
        lambda: fresh.storage(16, "z"),
        lambda: fresh.write(buffer, 0, bytes(16)),
        lambda: fresh.submit((), (), [(buffer, 0, staging, 0, 16)]),
        lambda: fresh.clear([(buffer, 0, 16)]),
        lambda: fresh.pipeline(DOUBLE, "two", ["read_write"]),
        lambda: fresh.bind_group(pipeline, [(buffer, 0, 16)], "group"),
    ):
        with pytest.raises(pteron.DeviceLost, match="the GPU was lost"):
            attempt()
    fresh.free(buffer)
