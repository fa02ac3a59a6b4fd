"""`pteron.load`: open a file and a device, and use the kernels that were measured to be the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pteron.devices import open_device
from pteron.gpu.device import Device
from pteron.gpu.wgpu.adapters import Adapter
from pteron.gpu.wgpu.wgpu_device import WgpuDevice
from pteron.lower.budget import MAX_NODES
from pteron.measure import tuning
from pteron.measure.trials import Trials
from pteron.plan.routes import Choice
from pteron.program import Program, lower_all
from pteron.pte.file import ProgramFile
from pteron.segments.graph import Batching


def load(
    source: Any,
    *,
    data_path: str | Path | Iterable[str | Path] | None = None,
    device: str | int | Adapter | Device | None = None,
    fuse: Iterable[str] | None = None,
    tune: bool | None = None,
    choice: Choice | None = None,
    max_nodes: int = MAX_NODES,
    kv_dtype: str | None = None,
    segments: int | Batching | None = None,
) -> Program:
    """Load a `.pte` program onto a GPU.

    Args:
        source: A path, bytes, or an open binary file.
        data_path: The `.ptd` file or files with weights that are stored outside the program.
        device: An adapter's index or part of its name, or an open device. Default: the best adapter.
        fuse: The fusion passes to run, by name. Default: all. `()` runs none.
        tune: Whether to time the kernels if there are no measurements on this device yet (see `pteron tune`).
            Default: on GPUs only, not on software adapters.
        choice: Which kernels to use. Default: those that were measured to be the fastest on this device.
        max_nodes: The maximum number of nodes in all methods together. A small file can ask for millions of
            nodes with nested loops. Raise the limit only for files that you trust.
        kv_dtype: `"f16"` or `"f32"` stores keys and values of attention in this type. Default: the type in
            the file.
        segments: The largest number of sequences that one call may run (see `SegmentedMethod.submit_many`).
            Each of them has its own KV caches. `Batching` has more options.

    Returns:
        The program. It owns GPU memory until `close()`, or until the end of a `with` block.

    Raises:
        FormatError: The file is damaged, or is not a `.pte` file.
        UnsupportedError: Pteron does not have some operators of the program. The message lists all of them.
        DeviceError: There is no usable GPU adapter.
        OutOfMemory: The weights do not fit on the device.

    Example:
        ```python
        with pteron.load("model.pte") as program:
            y = program(x)
        ```
    """
    paths = [data_path] if isinstance(data_path, (str, Path)) else list(data_path or ())
    fuse = None if fuse is None else tuple(fuse)
    batching = Batching(segments) if isinstance(segments, int) else segments
    file = ProgramFile.open(source, paths)
    opened: Device | None = None
    try:
        # Before a device is opened: a bad file needs none.
        graphs = lower_all(file, fuse, max_nodes, kv_dtype, batching)
        if device is None or isinstance(device, (str, int, Adapter)):
            device = opened = open_device(device)
        if tune is None:
            tune = not device.is_software
        tuner, known = None, choice
        if choice is None and isinstance(device, WgpuDevice):
            known = tuning.read(device.adapter)
            tuner = Trials() if tune else None
        options = {
            "fuse": fuse,
            "tune": tune,
            "choice": choice,
            "max_nodes": max_nodes,
            "kv_dtype": kv_dtype,
            "segments": segments,
        }
        return Program(
            file,
            graphs,
            device,
            owns_device=opened is not None,
            choice=known,
            tuner=tuner,
            origin=partial(_origin, source, paths, options),
        )
    except BaseException:
        if opened is not None:
            opened.close()
        file.close()
        raise


def _origin(
    source: Any, data_paths: list[Any], options: dict[str, Any], device: Any
) -> tuple[Callable[..., Program], tuple[Any, ...]]:
    """How to load the same program again, also in another process: files by absolute path, bytes by value."""
    return _load_again, (portable_source(source), [portable_source(p) for p in data_paths], device, options)


def portable_source(source: Any) -> Any:
    if isinstance(source, (str, Path)):
        return str(Path(source).absolute())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    raise TypeError("a program that was loaded from an open file cannot be pickled: load it from a path")


def _load_again(source: Any, data_paths: list[Any], device: Any, options: dict[str, Any]) -> Program:
    return load(source, data_path=data_paths, device=device, **options)
