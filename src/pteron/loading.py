"""`pteron.load`: open a file and a device, and use what has been measured on it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pteron.devices import open_device
from pteron.gpu.device import Device
from pteron.gpu.wgpu.adapters import Adapter
from pteron.gpu.wgpu.device import WgpuDevice
from pteron.lower.budget import MAX_NODES
from pteron.measure import tuning
from pteron.measure.trials import Trials
from pteron.plan.routes import Choice
from pteron.program import Program
from pteron.pte.file import ProgramFile


def load(
    source: Any,
    *,
    data_path: str | Path | Iterable[str | Path] | None = None,
    device: str | int | Adapter | Device | None = None,
    fuse: Iterable[str] | None = None,
    tune: bool | None = None,
    choice: Choice | None = None,
    max_nodes: int = MAX_NODES,
) -> Program:
    """Load a `.pte` file (a path, bytes, or an open binary file).

    data_path: the `.ptd` file or files that hold weights kept apart from the program.
    device: an adapter's index or part of its name, or an open device; the best adapter when left out.
    fuse: the fusion passes to run (see `pteron.fusion`); all when left out, none for `()`.
    tune: whether to time the kernels that could do the work, where this has not been done on this device
        before (see `pteron tune`); left out, on GPUs.
    choice: which of several kernels to take; left out, what has been measured on this device.
    max_nodes: the most nodes that the program's methods may have together. A small file can ask for millions,
        by loops inside loops; a file that you trust may have more than the default.
    """
    paths = [data_path] if isinstance(data_path, (str, Path)) else list(data_path or ())
    file = ProgramFile.open(source, paths)
    opened: Device | None = None
    try:
        if device is None or isinstance(device, (str, int, Adapter)):
            device = opened = open_device(device)
        if tune is None:
            tune = not device.is_software
        tuner = None
        if choice is None and isinstance(device, WgpuDevice):
            choice = tuning.read(device.adapter)
            tuner = Trials() if tune else None
        return Program(
            file,
            device,
            owns_device=opened is not None,
            passes=fuse,
            choice=choice,
            tuner=tuner,
            max_nodes=max_nodes,
        )
    except BaseException:
        if opened is not None:
            opened.close()
        file.close()
        raise
