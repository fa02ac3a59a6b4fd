"""An open `.pte` file: its program, and the bytes that the program refers to."""

import hashlib
from collections.abc import Iterable
from os import PathLike
from types import TracebackType
from typing import Self

from pteron.errors import FormatError
from pteron.pte import schema
from pteron.pte.bundled import TestSuite, is_bundle, read_bundle
from pteron.pte.bytesource import ByteSource, Openable, Region
from pteron.pte.container import HEAD_NBYTES, Segments
from pteron.pte.flat import decode
from pteron.pte.header import read_header
from pteron.pte.ptd import DataFile
from pteron.pte.sniff import looks_like
from pteron.pte.validate import check_index, check_program


class ProgramFile:
    """A program and its data. It returns regions of the file; bytes are read only by `Region.view`.

    with ProgramFile.open("model.pte") as file:
        plan = file.plan("forward")
        blobs = [file.delegate_blob(delegate) for delegate in plan.delegates]
    """

    def __init__(
        self,
        data: ByteSource,
        program: schema.Program,
        segments: Segments,
        external: list[DataFile],
        test_suites: tuple[TestSuite, ...] = (),
    ) -> None:
        """Call `open` instead."""
        self.program = program
        self.test_suites = test_suites  # of a bundled program
        self._bytes = data
        self._segments: Segments | None = segments
        self._external = external
        self._plans = {plan.name: plan for plan in program.execution_plan}
        self._inline: dict[tuple[str, int], Region] = {}
        self._named: dict[str, int] = {}
        for item in program.named_data:
            self._named.setdefault(item.key, item.segment_index)

    @classmethod
    def open(cls, source: Openable, data_paths: Iterable[Openable] = ()) -> Self:
        """Open a program from a path (which is mapped, not read), bytes, or a binary file. It may be bundled.

        `data_paths` are the `.ptd` files with the data that is stored outside the program. Raises FormatError
        if the file is damaged or if a reference in the program is out of range.
        """
        if isinstance(data_paths, str | bytes | PathLike):
            raise TypeError("data_paths is a sequence of paths: put a single path in a list")
        data = ByteSource(source)
        external: list[DataFile] = []
        suites: tuple[TestSuite, ...] = ()
        try:
            if is_bundle(data):
                data, suites = _unbundled(data)
            program, segments = _read(data)
            external.extend(map(DataFile, data_paths))
        except BaseException:
            _close_all(data, external)
            raise
        return cls(data, program, segments, external, suites)

    @property
    def method_names(self) -> tuple[str, ...]:
        return tuple(self._plans)

    def plan(self, name: str) -> schema.ExecutionPlan:
        """The method called `name`. A KeyError lists the methods of the program."""
        try:
            return self._plans[name]
        except KeyError:
            known = ", ".join(self._plans) or "none"
            raise KeyError(f"no method {name!r}; the program has: {known}") from None

    def segment(self, index: int) -> Region:
        if self._segments is None:
            raise ValueError(f"{self._bytes.name} is closed")
        return self._segments[index]

    def named_data(self, key: str) -> Region:
        """The data stored under `key`, in the program or in one of the `.ptd` files."""
        if key in self._named:
            return self.segment(self._named[key])
        return self._external_data(key)

    def delegate_blob(self, delegate: schema.BackendDelegate) -> Region:
        """The bytes that the exporter prepared for a backend."""
        where = delegate.processed
        if where.location == schema.DataLocation.SEGMENT:
            return self.segment(where.index)
        inline = self.program.backend_delegate_data
        check_index(where.index, len(inline), "inline data", f"program: delegate {delegate.id!r}")
        return self._inline_region("delegate", where.index, inline[where.index].data)

    def tensor_data(self, tensor: schema.Tensor) -> Region | None:
        """The bytes of a constant, or the initial bytes of a mutable tensor; None if there are none."""
        data = self._stored_data(tensor)
        if data is None:
            return None
        if len(data) < tensor.nbytes:
            raise FormatError(
                f"program: a {tensor.scalar_type.name} tensor of sizes {list(tensor.sizes)} "
                f"needs {tensor.nbytes} bytes, but {len(data)} are stored"
            )
        return data[: tensor.nbytes]

    @property
    def contents(self) -> memoryview:
        """All bytes of the `.pte` file."""
        return self._bytes.view

    @property
    def data_names(self) -> tuple[str, ...]:
        """The `.ptd` files with its data: their paths, if they were opened by path."""
        return tuple(file.name for file in self._external)

    def digest(self) -> str:
        """SHA-256 of the program and of the files with its data."""
        digest = hashlib.sha256(self._bytes.view)
        for file in self._external:
            digest.update(file.digest())
        return digest.hexdigest()

    def close(self) -> None:
        """Close the files. Views that somebody still holds keep their bytes alive."""
        self._segments = None
        _close_all(self._bytes, self._external)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stored_data(self, tensor: schema.Tensor) -> Region | None:
        """The region from a tensor's first byte to the end of the segment or buffer that holds it."""
        extra = tensor.extra_tensor_info or schema.ExtraTensorInfo()
        if extra.location == schema.TensorDataLocation.EXTERNAL:
            return self._external_data(extra.fully_qualified_name or "")
        if tensor.data_buffer_idx == 0:
            return None
        if tensor.allocation_info is not None:
            groups = self.program.mutable_data_segments
            group = extra.mutable_data_segments_idx
            check_index(group, len(groups), "mutable data segment", "program: a tensor")
            return self._subsegment(groups[group], tensor.data_buffer_idx)
        constants = self.program.constant_segment
        if constants is not None and constants.offsets:
            return self._subsegment(constants, tensor.data_buffer_idx)
        buffers = self.program.constant_buffer
        check_index(tensor.data_buffer_idx, len(buffers), "constant buffer", "program: a tensor")
        return self._inline_region(
            "constant", tensor.data_buffer_idx, buffers[tensor.data_buffer_idx].storage
        )

    def _subsegment(self, where: schema.SubsegmentOffsets, index: int) -> Region:
        check_index(index, len(where.offsets), "constant", "program: a tensor")
        segment = self.segment(where.segment_index)
        offset = where.offsets[index]
        if offset > len(segment):
            raise FormatError(
                f"program: constant {index} begins at byte {offset} of segment {where.segment_index}, "
                f"which has {len(segment)}"
            )
        return segment[offset:]

    def _inline_region(self, kind: str, index: int, data: memoryview) -> Region:
        """Bytes inside the FlatBuffer, as a source of their own. Each call returns the same source."""
        return self._inline.setdefault((kind, index), ByteSource(data).region())

    def _external_data(self, key: str) -> Region:
        for data_file in self._external:
            if key in data_file:
                return data_file[key]
        searched = ", ".join(data_file.name for data_file in self._external)
        raise FormatError(
            f"{self._bytes.name}: data {key!r} is not in the program"
            + (f", nor in {searched}" if searched else "; pass the .ptd file that holds it as data_path=")
        )


def _close_all(data: ByteSource, external: list[DataFile]) -> None:
    data.close()
    for data_file in external:
        data_file.close()


def _unbundled(source: ByteSource) -> tuple[ByteSource, tuple[TestSuite, ...]]:
    """The program in a bundle, as a source of its own, and the test cases."""
    bundle = read_bundle(source)
    program = ByteSource(bytes(bundle.program))
    program.name = source.name
    return program, bundle.method_test_suites


def _read(source: ByteSource) -> tuple[schema.Program, Segments]:
    head, name = source.region()[:HEAD_NBYTES].view, source.name
    if head[4:8] != schema.IDENTIFIER:
        raise FormatError(f"{name}: not a .pte program; it looks like {looks_like(head)}")
    parts = read_header(head, source.size, name)
    flatbuffer = source.read(0, parts.flatbuffer_end)
    program = decode(schema.Program, flatbuffer, identifier=schema.IDENTIFIER, what="program")
    check_program(program)
    return program, Segments(source, parts, program.segments, name)
