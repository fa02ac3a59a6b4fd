"""`pteron.load`: open a file and a device, and choose the kernels.

It uses those that were measured to be the fastest, and none that `pteron doctor --thorough` found wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pteron.async_program import AsyncProgram, off_loop
from pteron.browser import IN_BROWSER
from pteron.devices import Adapter, Device, open_device, open_device_async
from pteron.fetching import fetched
from pteron.ir.values import Graph
from pteron.lower.budget import MAX_NODES
from pteron.measure import examined, tuning
from pteron.plan.routes import Choice
from pteron.program import Program, Tuner, fuse_all_for, lower_all
from pteron.pte.file import ProgramFile
from pteron.segments.graph import Batching

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Options:
    """See `load`."""

    fuse: Iterable[str] | None = None
    tune: bool | None = None
    choice: Choice | None = None
    max_nodes: int = MAX_NODES
    kv_dtype: str | None = None
    segments: int | Batching | None = None
    wait: bool = True

    def __post_init__(self) -> None:
        if self.fuse is not None:  # it may be read only once
            object.__setattr__(self, "fuse", tuple(self.fuse))


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
    wait: bool = True,
    progress: Callable[[float, str], None] | None = None,
) -> Program:
    """Load a `.pte` program onto a GPU.

    Args:
        source: A path, bytes, or an open binary file.
        data_path: The `.ptd` file or files with weights that are stored outside the program.
        device: An adapter's index or part of its name, or an open device. Default: the best adapter.
        fuse: The fusion passes to run, by name. Default: all. `()` runs none.
        tune: Whether to time the kernels if there are no measurements on this device yet (see `pteron tune`).
            Default: on GPUs only, not on software adapters, and not with `wait=False`.
        choice: Which kernels to use. Default: those that were measured to be the fastest on this device.
        max_nodes: The maximum number of nodes in all methods together. A small file can ask for millions of
            nodes with nested loops. Raise the limit only for files that you trust.
        kv_dtype: `"f16"` or `"f32"` stores keys and values of attention in this type. Default: the type in
            the file.
        segments: The largest number of sequences that one call may run (see `SegmentedMethod.submit_many`).
            Each of them has its own KV caches. `Batching` has more options.
        wait: Whether the first use of a method waits until all its kernels are compiled. With False, it waits
            only for one kernel of each operator. A thread compiles the others, which are faster at some
            shapes. Until they are ready (`program.ready`, `program.wait_ready()`), calls run without them.
        progress: A function that is called while a method is loaded, at its first use, with the finished
            share of the kernels (0 to 1) and the name of the step.

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
    lowered = _lower(source, paths, _Options(fuse, tune, choice, max_nodes, kv_dtype, segments, wait))
    with _closed_on_failure(lowered.file):
        if device is not None and not isinstance(device, (str, int, Adapter)):
            return _program(lowered, device, owns_device=False, progress=progress)
        opened = open_device(device)
        with _closed_on_failure(opened):
            return _program(lowered, opened, owns_device=True, progress=progress)


async def load_async(
    source: Any,
    *,
    data_path: Any = None,
    device: str | int | Adapter | Device | None = None,
    **options: Any,
) -> AsyncProgram:
    """Load a `.pte` program whose calls are awaited. It works in a browser and on any other machine.

    Args:
        source: A path, a URL, bytes, an open binary file, or a buffer of JavaScript. In a browser, a string
            is a URL unless a file has this name. It may be relative to the page. The weights are fetched at
            the first use of a method.
        data_path: The `.ptd` file or files with weights that are stored outside the program, likewise.
        device: As for `load`. In a browser: an open device, `"high-performance"` or `"low-power"`.
        **options: The other options of `load`. In a browser, `wait=False` has no effect.

    Returns:
        The program. It owns GPU memory until `close()`, or until the end of an `async with` block.

    Raises:
        OSError: The URL cannot be read.
        FormatError: The file is damaged, or is not a `.pte` file.
        UnsupportedError: Pteron does not have some operators of the program. The message lists all of them.
        DeviceError: There is no usable GPU adapter.

    Example:
        ```python
        program = await pteron.load_async("https://example.org/model.pte")
        y = await program(x)
        ```
    """
    single = isinstance(data_path, (str, Path, bytes)) or not isinstance(data_path, Iterable)
    paths = [path for path in ([data_path] if single else data_path) if path is not None]
    source, *paths = [await fetched(place) for place in (source, *paths)]
    lowered = await off_loop(partial(_lower, source, paths, _Options(**options)))
    with _closed_on_failure(lowered.file):
        if device is not None and not isinstance(device, (str, int, Adapter)):
            return AsyncProgram(await off_loop(partial(_program, lowered, device, owns_device=False)))
        opened = await open_device_async(device)
        with _closed_on_failure(opened):
            return AsyncProgram(await off_loop(partial(_program, lowered, opened, owns_device=True)))


def load_file(file: ProgramFile, device: Device) -> Program:
    """Load an open file onto an open device, with the default options of `load`. The caller closes both."""
    return _program(_lower_file(file, None, [], _Options()), device, owns_device=False)


@dataclass(frozen=True, slots=True)
class _Lowered:
    """An open file, its graphs, and how it was asked for."""

    file: ProgramFile
    graphs: Mapping[str, Graph]
    source: Any
    paths: list[Any]
    options: _Options


def _lower(source: Any, paths: list[Any], options: _Options) -> _Lowered:
    """Everything before a device is opened: a bad file needs none."""
    file = ProgramFile.open(source, paths)
    with _closed_on_failure(file):
        return _lower_file(file, source, paths, options)


def _lower_file(file: ProgramFile, source: Any, paths: list[Any], options: _Options) -> _Lowered:
    segments = options.segments
    batching = Batching(segments) if isinstance(segments, int) else segments
    graphs = lower_all(file, options.fuse, options.max_nodes, options.kv_dtype, batching)
    return _Lowered(file, graphs, source, paths, options)


def _program(
    lowered: _Lowered,
    device: Device,
    owns_device: bool,
    progress: Callable[[float, str], None] | None = None,
) -> Program:
    choice, tuner = _measurements(device, lowered.options)
    origin = partial(_origin, lowered.source, lowered.paths, vars(lowered.options))
    known = None if device.adapter is None else examined.read(device.adapter)
    program = Program(
        lowered.file,
        fuse_all_for(device, lowered.graphs, lowered.options.fuse),
        device,
        owns_device=owns_device,
        choice=choice,
        wrong=known.wrong if known else None,
        tuner=tuner,
        progress=progress,
        # To measure kernels, all are compiled. A browser has no threads.
        wait=lowered.options.wait or tuner is not None or IN_BROWSER,
        origin=origin,
    )
    _tell_wrong_routes(program)
    return program


def _measurements(device: Device, options: _Options) -> tuple[Choice | None, Tuner | None]:
    """The kernels to use, and what finds the fastest if they are not known."""
    if options.choice is not None or device.adapter is None:
        return options.choice, None
    known = tuning.read(device.adapter)
    if not (not device.is_software and options.wait if options.tune is None else options.tune):
        return known, None
    from pteron.measure.trials import Trials  # needs numpy and wgpu

    return known, Trials()


@contextmanager
def _closed_on_failure(thing: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        thing.close()
        raise


def _tell_wrong_routes(program: Program) -> None:
    for avoided, outcome in ((True, "so other kernels are used"), (False, "and no other kernel can be used")):
        found: dict[str, set[str]] = {}
        for live in program.planned:
            for label, operators in (live.avoided if avoided else live.unavoidable).items():
                found.setdefault(label, set()).update(operators)
        for label, operators in found.items():
            _log.warning(
                "pteron doctor found wrong results of %s on %s, %s: %s",
                label,
                program.device.name,
                outcome,
                ", ".join(sorted(operators)),
            )


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
