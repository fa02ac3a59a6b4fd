"""`pteron.load`: open a file and a device, and choose the kernels.

It uses those that were measured to be the fastest, and none that `pteron doctor --thorough` found wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from pteron._util.browser import IN_BROWSER
from pteron._util.progress import Progress
from pteron.api.async_program import AsyncProgram, off_loop
from pteron.api.expected_shapes import Expected, ExpectedCalls, Points, read_expected
from pteron.api.fetching import fetch_source
from pteron.api.program import Program, Tuner
from pteron.compiler import pipeline
from pteron.compiler.ir.dispatch import PRECISIONS
from pteron.compiler.lower.bounds import GivenShapes
from pteron.compiler.lower.budget import MAX_NODES
from pteron.compiler.plan.routes import Choice
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.segments.graph import Batching
from pteron.engine.devices.opening import Adapter, Device
from pteron.engine.devices.shared import borrow, borrow_async, give_back
from pteron.engine.measured.target import target_of
from pteron.errors import InputError
from pteron.pte.file import ProgramFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Options(pipeline.GraphOptions):
    """See `load`."""

    tune: bool | None = None
    choice: Choice | None = None
    precision: str = "float32"
    wait: bool = True
    methods: str | Iterable[str] | None = None
    expect: Expected = ()
    only_expected: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "expect", read_expected(self.expect))
        if self.precision not in PRECISIONS:
            known = ", ".join(map(repr, PRECISIONS))
            raise InputError(f"precision must be one of {known}, not {self.precision!r}")
        some = any(self.points.values())
        if some and self.segments is not None:
            raise InputError("expect= is for calls of one sequence: leave out segments=")
        if self.only_expected and not (some and self.wait):
            raise InputError("only_expected=True needs shapes in expect=, and wait=True")
        if self.methods is not None:
            listed = (self.methods,) if isinstance(self.methods, str) else tuple(self.methods)
            object.__setattr__(self, "methods", listed)

    @property
    def points(self) -> Mapping[str, Points]:
        """The expected calls of each method, as they were given: see `read_expected`."""
        return cast("Mapping[str, Points]", self.expect)


def load(
    source: Any,
    *,
    data_path: str | Path | Iterable[str | Path] | None = None,
    device: str | int | Adapter | Device | None = None,
    fuse: Iterable[str] | None = None,
    tune: bool | None = None,
    choice: Choice | None = None,
    precision: str = "float32",
    max_nodes: int = MAX_NODES,
    kv_dtype: str | None = None,
    kv_length: int | None = None,
    segments: int | Batching | None = None,
    shapes: GivenShapes | None = None,
    expect: Expected = (),
    only_expected: bool = False,
    methods: str | Iterable[str] | None = None,
    wait: bool = True,
    progress: Progress | None = None,
) -> Program:
    """Load a `.pte` program onto a GPU: upload its weights, and compile its kernels.

    A program may have several methods. Those that are not loaded now are loaded at their first use. Until
    then, they take no memory on the GPU.

    Args:
        source: A path, bytes, or an open binary file.
        data_path: The `.ptd` file or files with weights that are stored outside the program.
        device: An adapter's index or part of its name, or an open device. Default: the best adapter.
        fuse: The fusion passes to run, by name. Default: all. `()` runs none.
        tune: Whether to time the kernels if there are no measurements on this device yet (see `pteron tune`).
            Default: on GPUs only, not on software adapters, and not with `wait=False`.
        choice: Which kernels to use. Default: those that were measured to be the fastest on this device.
        precision: What GPUs may round the operands of products to, which is faster: `"float16"`, or `"int8"`
            for activations that meet weights of 2 to 8 bits (see docs/language-models.md). Sums are float32.
            Default: nothing is rounded. Software adapters round nothing.
        max_nodes: The maximum number of nodes in all methods together. A small file can ask for millions of
            nodes with nested loops. Raise the limit only for files that you trust.
        kv_dtype: `"f16"` or `"f32"` stores keys and values of attention in this type. Default: the type in
            the file.
        kv_length: The positions of the KV caches of a language model that `pteron convert` wrote. Default:
            those in the file.
        segments: The largest number of sequences that one call may run (see `SegmentedMethod.submit_many`).
            Each of them has its own KV caches. `Batching` has more options.
        shapes: Smaller largest shapes than the file's, by input: a bound by dimension, such as
            `{"x": {1: 512}}`, or a shape. Memory is allocated for these. `{"x": {1: (512, 512)}}` makes the
            size a constant. Sizes that the program ties to them follow.
        expect: Shapes that calls will have, such as `[(1, 37), (1, 512)]`: they are planned now, and kernels
            are timed at them. Each is the shape of the input that varies, or the shapes and integers of
            inputs by name. With several methods: a list for each, by name. Or a file that
            `Method.record_shapes` wrote.
        only_expected: Whether to refuse a call that would need a new plan. No call then takes longer than
            others because of its shape.
        methods: The names of the methods to load now. `()`: none. Default: `forward`, or the only method.
        wait: Whether to wait until all kernels of a method are compiled. With False, it waits only for one
            kernel of each operator. A thread compiles the others, which are faster at some shapes. Until they
            are ready (`program.ready`, `program.wait_ready()`), calls run without them.
        progress: A function that is called while a method is loaded, with what is being done, the finished
            share of its kernels, and 1.0.

    Returns:
        The program. It owns GPU memory until `close()`, or until the end of a `with` block.

    Raises:
        FormatError: The file is damaged, or is not a `.pte` file.
        UnsupportedError: Pteron does not have some operators of the program. The message lists all of them.
        KeyError: The program has no method with a name in `methods`.
        DeviceError: There is no usable GPU adapter.
        OutOfMemory: The weights do not fit on the device.
        InputError: A shape in `shapes` or `expect` does not fit the program.

    Example:
        ```python
        with pteron.load("model.pte") as program:
            y = program(x)
        ```
    """
    paths = [data_path] if isinstance(data_path, (str, Path)) else list(data_path or ())
    options = _Options(
        fuse,
        max_nodes,
        kv_dtype,
        kv_length,
        segments,
        shapes,
        tune=tune,
        choice=choice,
        precision=precision,
        wait=wait,
        methods=methods,
        expect=expect,
        only_expected=only_expected,
    )
    lowered = _lower(source, paths, options)
    with _on_failure(lowered.file.close):
        if device is not None and not isinstance(device, (str, int, Adapter)):
            return _load(lowered, device, owns_device=False, progress=progress)
        return _load(lowered, borrow(device), owns_device=True, progress=progress)


async def load_async(
    source: Any,
    *,
    data_path: Any = None,
    device: str | int | Adapter | Device | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AsyncProgram:
    """Load a `.pte` program whose calls are awaited. It works in a browser and on any other machine.

    Args:
        source: A path, a URL, bytes, an open binary file, or a buffer of JavaScript. In a browser, a string
            is a URL unless a file has this name. It may be relative to the page. The weights of methods that
            are loaded later (see `methods` of `load`) are fetched then.
        data_path: The `.ptd` file or files with weights that are stored outside the program, likewise.
        device: As for `load`. In a browser: an open device, `"high-performance"` or `"low-power"`.
        progress: As for `load`.
        **options: The other options of `load`. In a browser, `wait=False` has no effect.

    Returns:
        The program. It owns GPU memory until `close()`, or until the end of an `async with` block.

    Raises:
        OSError: The URL cannot be read.
        FormatError: The file is damaged, or is not a `.pte` file.
        UnsupportedError: Pteron does not have some operators of the program. The message lists all of them.
        DeviceError: There is no usable GPU adapter.
        OutOfMemory: The weights do not fit on the device.

    Example:
        ```python
        program = await pteron.load_async("https://example.org/model.pte")
        y = await program(x)
        ```
    """
    single = isinstance(data_path, (str, Path, bytes)) or not isinstance(data_path, Iterable)
    paths = [path for path in ([data_path] if single else data_path) if path is not None]
    source, *paths = [await fetch_source(place) for place in (source, *paths)]
    lowered = await off_loop(partial(_lower, source, paths, _Options(**options)))
    with _on_failure(lowered.file.close):
        if device is not None and not isinstance(device, (str, int, Adapter)):
            return await _load_async(lowered, device, owns_device=False, progress=progress)
        opened = await borrow_async(device)
        return await _load_async(lowered, opened, owns_device=True, progress=progress)


def load_file(file: ProgramFile, device: Device, **options: Any) -> Program:
    """The program of an open file on an open device, with options of `load`. The caller closes both.

    Each method is loaded at its first use. Nothing is logged.
    """
    return _program(_lower_file(file, None, [], _Options(methods=(), **options)), device, owns_device=False)


@dataclass(frozen=True, slots=True)
class _Lowered:
    """An open file, its graphs, and how it was asked for."""

    file: ProgramFile
    methods: pipeline.LoweredFile
    source: Any
    paths: list[Any]
    options: _Options

    @property
    def wanted(self) -> Iterable[str]:
        """The methods to load now."""
        if self.options.methods is not None:
            return self.options.methods
        names = self.file.method_names
        return ("forward",) if "forward" in names else names if len(names) == 1 else ()

    @property
    def expected(self) -> dict[str, ExpectedCalls]:
        """The expected calls, by method."""
        given, only = dict(self.options.points), self.options.only_expected
        if points := given.pop("", ()):
            names = self.file.method_names
            default = "forward" if "forward" in names else names[0]
            if default != "forward" and len(names) > 1:
                raise InputError(f"expect: give the shapes by method, of {', '.join(names)}")
            given[default] = points
        for name in given:
            self.file.plan(name)  # the KeyError lists the methods
        return {name: ExpectedCalls(points, only) for name, points in given.items()}


def _lower(source: Any, paths: list[Any], options: _Options) -> _Lowered:
    """Everything before a device is opened: a bad file needs none."""
    file = ProgramFile.open(source, paths)
    with _on_failure(file.close):
        return _lower_file(file, source, paths, options)


def _lower_file(file: ProgramFile, source: Any, paths: list[Any], options: _Options) -> _Lowered:
    for name in options.methods or ():
        file.plan(name)  # the KeyError lists the methods
    methods = pipeline.lower(file, options=options)
    methods.check()
    return _Lowered(file, methods, source, paths, options)


def _load(lowered: _Lowered, device: Device, **options: Any) -> Program:
    program = _program(lowered, device, **options)
    planned = list(program.planned)
    with _on_failure(program.close):
        for name in lowered.wanted:
            program.method(name)
    _tell_what_is_loaded(lowered, program, planned)
    return program


async def _load_async(lowered: _Lowered, device: Device, **options: Any) -> AsyncProgram:
    program = await off_loop(partial(_program, lowered, device, **options))
    planned = list(program.planned)
    made = AsyncProgram(program)
    with _on_failure(program.close):
        for name in lowered.wanted:
            await made.method(name)
    _tell_what_is_loaded(lowered, program, planned)
    return made


def _program(
    lowered: _Lowered,
    device: Device,
    owns_device: bool,
    progress: Progress | None = None,
) -> Program:
    """The program, planned for a device. No method is loaded yet."""
    options = lowered.options
    origin = partial(_origin, lowered.source, lowered.paths, vars(options))
    with _on_failure(partial(give_back, device) if owns_device else lambda: None):
        tuner, target = _tuner(device, options), replace(target_of(device), precision=options.precision)
        program = Program(
            lowered.file,
            lowered.methods,
            device,
            target if options.choice is None else replace(target, choice=options.choice),
            owns_device=owns_device,
            tuner=tuner,
            progress=progress,
            # To measure kernels, all are compiled. A browser has no threads.
            wait=options.wait or tuner is not None or IN_BROWSER,
            origin=origin,
            expected=lowered.expected,
        )
    _tell_wrong_routes(program)
    return program


def _tuner(device: Device, options: _Options) -> Tuner | None:
    """Return what measures kernels at a first load; None if nothing is to be measured."""
    if options.choice is not None or device.adapter is None:
        return None
    if not (not device.is_software and options.wait if options.tune is None else options.tune):
        return None
    from pteron.api.profiling.trials import Trials  # needs numpy and wgpu

    return Trials()


@contextmanager
def _on_failure(undo: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        undo()
        raise


def _tell_what_is_loaded(lowered: _Lowered, program: Program, planned: Iterable[LiveGraph]) -> None:
    if _log.isEnabledFor(logging.INFO):
        named = isinstance(lowered.source, (str, Path))
        _log.info(
            "loaded %s on %s (%s): %s",
            Path(lowered.source).name if named else "a program",
            program.device.name,
            "a software adapter, which runs on the CPU" if program.device.is_software else "a GPU",
            ", ".join(
                f"{live.graph.name} ({len(live.graph.nodes)} nodes, {_kernels(live)} kernels"
                + ("" if program.has_loaded(live.graph.name) else ", at its first use")
                + ")"
                for live in planned
            ),
        )


def _kernels(live: LiveGraph) -> int:
    """The number of kernels in all routes. Nodes of one form share theirs."""
    routes = {
        (live.form(node), route.name): len(route.dispatches)
        for node, offered in enumerate(live.routes)
        for route in offered
    }
    return sum(routes.values())


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
    source: Any, data_paths: list[Any], options: dict[str, Any], device: Any, **changed: Any
) -> tuple[Callable[..., Program], tuple[Any, ...]]:
    """How to load the same program again, also in another process: files by absolute path, bytes by value."""
    return _load_again, (
        portable_source(source),
        [portable_source(p) for p in data_paths],
        device,
        options | changed,
    )


def portable_source(source: Any) -> Any:
    if isinstance(source, (str, Path)):
        return str(Path(source).absolute())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    raise TypeError("a program that was loaded from an open file cannot be pickled: load it from a path")


def _load_again(source: Any, data_paths: list[Any], device: Any, options: dict[str, Any]) -> Program:
    return load(source, data_path=data_paths, device=device, **options)
