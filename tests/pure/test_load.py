"""`load` loads: after it, weights are on the device and kernels are compiled. Other methods cost nothing."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

import pteron
from pteron.engine.devices.recording import UNLIMITED, RecordingDevice
from pteron.pte import schema
from pteron.pte.writer import program_chunks

SMALL, LARGE = 8, 1 << 16  # the numbers in the constants of the two methods


def program(*names: str) -> bytes:
    """A file whose methods add a constant to their input. That of `large` is large."""
    counts = [LARGE if name == "large" else SMALL for name in names]
    plans = tuple(_adds(name, counts[number], number + 1) for number, name in enumerate(names))
    data = b"".join(struct.pack(f"<{n}f", *range(n)) for n in counts)
    starts = tuple(4 * sum(counts[:number]) for number in range(len(counts)))
    made = schema.Program(execution_plan=plans, constant_segment=schema.SubsegmentOffsets(0, (0, *starts)))
    return b"".join(program_chunks(made, (data,)))


def _adds(name: str, count: int, buffer: int) -> schema.ExecutionPlan:
    shape: dict[str, Any] = {"sizes": (count,), "dim_order": (0,)}
    kind = schema.ScalarType.FLOAT
    return schema.ExecutionPlan(
        name,
        values=(
            *(schema.EValue(schema.Tensor(kind, **shape)) for _ in range(2)),
            schema.EValue(schema.Tensor(kind, data_buffer_idx=buffer, **shape)),
            schema.EValue(schema.Int(1)),
        ),
        inputs=(0,),
        outputs=(1,),
        chains=(schema.Chain(instructions=(schema.Instruction(schema.KernelCall(0, (0, 2, 3, 1, 1))),)),),
        operators=(schema.Operator("aten::add", "out"),),
    )


def loaded_by(device: RecordingDevice, source: bytes, **options: Any) -> set[str]:
    """The methods that a load has loaded, by both interfaces."""
    with pteron.load(source, device=device, **options) as now:
        found = {name for name in now.method_names if now.has_loaded(name)}

    async def later() -> set[str]:
        async with await pteron.load_async(source, device=RecordingDevice(), **options) as program:
            return {name for name in program.method_names if program._program.has_loaded(name)}

    assert asyncio.run(later()) == found
    return found


def used(device: RecordingDevice) -> tuple[int, int, int]:
    """The bytes of all buffers, the compiled kernels, and the events so far."""
    return sum(buffer.size for buffer in device.buffers), len(device.pipelines), len(device.events)


def test_a_load_uploads_the_weights_and_compiles_the_kernels() -> None:
    device = RecordingDevice()
    told: list[float] = []
    loaded = pteron.load(program("forward"), device=device, progress=lambda _, share, of: told.append(share))
    nbytes, kernels, _ = after = used(device)
    assert nbytes >= 3 * 4 * SMALL and kernels > 0 and told[-1] == 1.0
    loaded.method()
    assert used(device) == after, "nothing is left for the first use"


@pytest.mark.parametrize(
    ("names", "methods", "wanted"),
    [
        (["forward", "large"], None, {"forward"}),
        (["large"], None, {"large"}),
        (["prefill", "large"], None, set()),
        (["forward", "large"], (), set()),
        (["forward", "large"], "large", {"large"}),
        (["forward", "large"], ["large", "forward"], {"large", "forward"}),
    ],
)
def test_which_methods_are_loaded(names: list[str], methods: Any, wanted: set[str]) -> None:
    assert loaded_by(RecordingDevice(), program(*names), methods=methods) == wanted


def test_a_large_method_that_nobody_calls_costs_nothing() -> None:
    both, alone = RecordingDevice(), RecordingDevice()
    loaded = pteron.load(program("forward", "large"), device=both)
    pteron.load(program("forward"), device=alone)
    assert used(both)[:2] == used(alone)[:2]
    loaded.method("large")
    assert used(both)[0] >= used(alone)[0] + 4 * LARGE


def test_a_load_raises_what_prevents_it() -> None:
    small = RecordingDevice(limits=UNLIMITED | {"max-buffer-size": 4 * LARGE - 4})
    source = program("forward", "large")
    with pytest.raises(pteron.OutOfMemory):
        pteron.load(source, device=small, methods=["forward", "large"])
    with pytest.raises(pteron.OutOfMemory):
        asyncio.run(pteron.load_async(source, device=small, methods="large"))
    with pytest.raises(KeyError, match="no method 'backward'; the program has: forward, large"):
        pteron.load(source, device=small, methods=["backward"])
    with pteron.load(source, device=small) as loaded, pytest.raises(pteron.OutOfMemory):
        loaded.method("large")
