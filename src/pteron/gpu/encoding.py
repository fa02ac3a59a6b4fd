"""Recording kernels into a compute pass, with as little Python per dispatch as there can be.

wgpu-py's public calls cost several microseconds each; the C functions beneath them cost less than one.
They are used where this version of wgpu-py has them in the known place, and the public calls otherwise.
Errors in a recording surface when the encoder is finished, in either case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

Command: TypeAlias = tuple[Any, Any, int, int, int]  # pipeline, bind group, grid: what `command` returned

try:
    from wgpu.backends.wgpu_native import ffi, lib

    _set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    _set_group = lib.wgpuComputePassEncoderSetBindGroup
    _dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    _no_offsets = ffi.NULL
    RAW = True
except (ImportError, AttributeError):
    RAW = False


def command(pipeline: Any, group: Any, grid: tuple[int, int, int]) -> Command:
    """One dispatch, resolved once. Whoever holds it keeps the pipeline and the group alive."""
    if RAW:
        return (pipeline._internal, group._internal, *grid)
    return (pipeline, group, *grid)


def one_pass(encoder: Any, commands: Iterable[Command]) -> None:
    """Record commands the way every ordinary call does."""
    compute = encoder.begin_compute_pass()
    encode(compute, commands)
    compute.end()


def encode(compute: Any, commands: Iterable[Command]) -> None:
    """Record commands into an open compute pass. A pipeline that is already set is not set again."""
    if not RAW:
        return encode_public(compute, commands)
    handle = compute._internal
    present = None
    for pipeline, group, x, y, z in commands:
        if pipeline is not present:
            _set_pipeline(handle, pipeline)
            present = pipeline
        _set_group(handle, 0, group, 0, _no_offsets)
        _dispatch(handle, x, y, z)
    return None


def encode_public(compute: Any, commands: Iterable[Command]) -> None:
    present = None
    for pipeline, group, x, y, z in commands:
        if pipeline is not present:
            compute.set_pipeline(pipeline)
            present = pipeline
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(x, y, z)
