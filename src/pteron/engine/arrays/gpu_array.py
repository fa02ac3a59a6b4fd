"""Outputs that stay on the GPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Shape, numel
from pteron.engine.arrays.library import host
from pteron.engine.devices.device import Buffer, Device
from pteron.engine.staging import read_back, read_back_async
from pteron.errors import PteronError

if TYPE_CHECKING:
    import numpy as np


class GpuArray:
    """An output that stays on the GPU (`keep_on_gpu=True`). Pass it to a call, or read it with `numpy()`.

    It also has `__array__` and `__dlpack__`, which copy it to host memory. When it is dropped or closed, a
    later call uses its memory again.

    Attributes:
        shape: Its shape.
        dtype: The numpy dtype of `numpy()`. Without numpy, its name.
    """

    def __init__(
        self,
        device: Device,
        buffer: Buffer,
        dtype: DType,
        host_type: str,
        shape: Shape,
        give_back: Callable[[Buffer], None],
    ) -> None:
        self.device = device
        self._buffer: Buffer | None = buffer
        self._give_back = weakref.finalize(self, give_back, buffer)
        self._give_back.atexit = False
        self.gpu_dtype = dtype
        self.dtype = host.dtype(host_type)
        self.host_type = host_type
        self.shape = shape

    @property
    def buffer(self) -> Buffer:
        self.check_open()
        assert self._buffer is not None
        return self._buffer

    def check_open(self) -> None:
        if self._buffer is None:
            raise PteronError("the GpuArray is closed: read it before")

    def close(self) -> None:
        """Let a later call use its memory. A second close does nothing."""
        self._buffer = None
        self._give_back()

    @property
    def nbytes(self) -> int:
        """Bytes on the GPU."""
        return numel(self.shape) * self.gpu_dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def read(self) -> Any:
        """A copy in host memory: a numpy array, or a `HostArray` if numpy is not installed."""
        if not self.nbytes:
            return host.empty(self.shape, self.host_type)
        return read_back(self.device, self.buffer, self.nbytes, self._from_bytes)

    async def read_async(self) -> Any:
        """Like `read`, without blocking the event loop."""
        if not self.nbytes:
            return host.empty(self.shape, self.host_type)
        return await read_back_async(self.device, self.buffer, self.nbytes, self._from_bytes)

    def _from_bytes(self, data: memoryview) -> Any:
        return host.from_gpu(data, self.gpu_dtype, self.host_type, self.shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Copy it to a new numpy array."""
        import numpy as np

        return np.asarray(self.read())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        out = self.numpy()
        return out if dtype is None else out.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # __dlpack__ returns a copy in host memory

    def __reduce__(self) -> Any:
        raise TypeError("a GpuArray belongs to one GPU and cannot be pickled: send its .numpy()")

    def __repr__(self) -> str:
        return f"GpuArray(shape={self.shape}, dtype={self.dtype})"
