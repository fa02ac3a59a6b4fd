"""Files whose parts must be awaited: a program is planned with some of them, and its weights are streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Constant, Graph, Joined, Tensor
from pteron.compiler.pipeline import lower
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.recording import RecordingDevice, Write
from pteron.engine.weight_store import WeightStore
from pteron.pte.bytesource import ByteSource, NotFetched, RemoteFile, when_fetched
from pteron.pte.file import ProgramFile
from tests.support import DATA

BLOCK = 12


class AwaitedFile:
    """Bytes that can be read after they were awaited, and streamed in small blocks."""

    name = "https://example.org/model.pte"

    def __init__(self, data: bytes, fails_at: int | None = None) -> None:
        self.data = data
        self.size = len(data)
        self.fetched: list[range] = []
        self.streamed: list[range] = []
        self.fails_at = fails_at

    def read_at(self, start: int, nbytes: int) -> bytes:
        wanted = range(start, start + nbytes)
        if not any(wanted.start >= part.start and wanted.stop <= part.stop for part in self.fetched):
            raise NotFetched(lambda: self.fetch(wanted))
        return self.data[wanted.start : wanted.stop]

    async def fetch(self, wanted: range) -> None:
        await asyncio.sleep(0)
        self.fetched.append(wanted)

    async def stream(self, start: int, nbytes: int) -> AsyncIterator[bytes]:
        for first in range(start, start + nbytes, BLOCK):
            part = range(first, min(first + BLOCK, start + nbytes))
            if self.fails_at in part:
                raise OSError("the connection was lost")
            self.streamed.append(part)
            yield self.data[part.start : part.stop]


def constants(source: ByteSource) -> list[Tensor]:
    """Constants stored as on the GPU, 64-bit, permuted and joined. The first of them is last in the file."""
    graph = Graph("sketch")

    def constant(
        start: int, shape: tuple[int, ...], dtype: DType, host: str = "", order: tuple[int, ...] = ()
    ) -> Tensor:
        nbytes = int(np.prod(shape)) * np.dtype(host or dtype.label).itemsize
        stored = Constant(source.region(start, nbytes), host or dtype.label, order)
        return graph.tensor(dtype, shape, f"c{start}", stored)

    half = constant(380, (9,), DType.float16)
    wide = constant(300, (5,), DType.int32, "int64")
    turned = constant(200, (3, 4), DType.float32, order=(1, 0))
    halves = (constant(100, (2, 8), DType.uint8), constant(60, (4, 8), DType.uint8))
    rows = graph.tensor(DType.uint8, (6, 8), "rows", Joined(halves, 0))
    columns = graph.tensor(DType.uint8, (2, 16), "columns", Joined((halves[0], halves[0]), 1))
    plain = constant(0, (13,), DType.float32)
    return [half, wide, turned, rows, columns, plain]


def contents(device: RecordingDevice) -> dict[str, bytes]:
    """What was written to each buffer."""
    found = {buffer.label: bytearray(buffer.size) for buffer in device.buffers}
    for event in device.events:
        assert isinstance(event, Write) and event.offset % 4 == 0
        found[event.buffer.label][event.offset : event.offset + len(event.data)] = event.data
    return {label: bytes(data) for label, data in found.items()}


def file_contents() -> bytes:
    data = np.random.default_rng(1).integers(0, 256, 400).astype(np.uint8)
    data[300:340] = np.arange(5, dtype=np.int64).view(np.uint8)
    return data.tobytes()


def test_constants_are_streamed_in_the_order_of_the_file() -> None:
    file = AwaitedFile(file_contents())
    assert isinstance(file, RemoteFile)
    device, near = RecordingDevice(), RecordingDevice()
    tensors = constants(ByteSource(file))
    weights = WeightStore(device, convert_constant)
    asyncio.run(weights.fetch(tensors))
    placed = WeightStore(near, convert_constant)
    for tensor in constants(ByteSource(file.data)):
        placed.buffer(tensor)
    assert contents(device) == contents(near)
    starts = [part.start for part in file.streamed]
    assert starts == sorted(starts) and len(starts) > 8
    assert sum(map(len, file.streamed)) == 52 + 48 + 18, "what needs no conversion is streamed, once"

    count = len(device.events)
    for tensor in tensors:
        weights.buffer(tensor)
    assert len(device.events) == count, "all constants are on the GPU"


def test_a_stream_that_fails_leaves_nothing_and_can_be_repeated() -> None:
    file = AwaitedFile(file_contents(), fails_at=390)
    tensors = constants(ByteSource(file))
    weights = WeightStore(RecordingDevice(), convert_constant)
    with pytest.raises(OSError, match="the connection was lost"):
        asyncio.run(weights.fetch(tensors))
    assert weights.nbytes == 0
    file.fails_at = None
    asyncio.run(weights.fetch(tensors))
    assert weights.nbytes > 0


def test_constants_of_near_files_are_left_to_their_first_use() -> None:
    device = RecordingDevice()
    asyncio.run(WeightStore(device, convert_constant).fetch(constants(ByteSource(file_contents()))))
    assert device.events == []


@pytest.mark.parametrize("name", ["emb_dyn.pte", "dyn_conv1d.pte", "sdpa_dyn.pte"])
def test_a_program_is_lowered_without_its_weights(name: str) -> None:
    file = AwaitedFile((DATA / name).read_bytes())
    graph = asyncio.run(when_fetched(lambda: lower(ProgramFile.open(file)))).graphs["forward"]
    with ProgramFile.open(DATA / name) as near:
        expected = lower(near).graphs["forward"]
    assert [str(node) for node in graph.nodes] == [str(node) for node in expected.nodes]
    for tensor in graph.tensors():
        if isinstance(tensor.constant, Constant) and tensor.constant.data.source.remote:
            region = tensor.constant.data
            with pytest.raises(NotFetched):
                _ = region.view
