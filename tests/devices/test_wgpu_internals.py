"""The private parts of wgpu-py mean what `wgpu/native.py` takes them for."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wgpu

import pteron
from pteron.engine.devices.device import Checks
from pteron.engine.devices.opening import Device, open_device
from pteron.engine.devices.wgpu import native
from pteron.engine.devices.wgpu.translate import wgpu_errors

ROOM = Path(native.__file__).parent


@pytest.fixture(scope="module")
def opened() -> Iterator[Device]:
    device = open_device()
    yield device
    device.close()


@pytest.fixture(scope="module")
def raw(opened: Any) -> Any:
    return opened._device


def test_the_native_functions_are_found(pytestconfig: pytest.Config) -> None:
    assert native.AVAILABLE or pytestconfig.getoption("--public-calls"), (
        "wgpu-py has moved what the fast way needs"
    )


def test_no_other_file_uses_private_names() -> None:
    for path in ROOM.rglob("*.py"):
        if path.name not in ("native.py", "parsed_header.py"):
            nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
            used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
            assert not used & {"_internal", "_release", "__del__"}, path
            assert not any("wgpu_native" in module for module in modules), path


def test_an_empty_map_callback_is_a_function_in_c() -> None:
    """It takes what the library gives, and runs no bytecode, in which a signal would raise."""
    status, message = 1, native.ffi.new("WGPUStringView *")[0]
    seen: list[str] = []
    gc.disable()  # finalizers of other tests are calls, too
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        native._on_mapped(status, message, native.ffi.NULL, native.ffi.NULL)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert "call" not in seen and "c_call" in seen
    assert native.ffi.typeof(native._on_mapped) is native.ffi.typeof("WGPUBufferMapCallback")


@pytest.mark.parametrize(
    ("named", "kind", "ours"),
    [
        ("OutOfMemory", wgpu.GPUOutOfMemoryError, pteron.OutOfMemory),
        ("Validation", wgpu.GPUValidationError, pteron.DeviceError),
        ("Internal", wgpu.GPUInternalError, pteron.DeviceError),
        ("Unknown", wgpu.GPUError, pteron.DeviceError),
    ],
)
def test_errors_keep_their_type(raw: Any, named: str, kind: type[Exception], ours: type[Exception]) -> None:
    """The text says nothing about the type: here, it speaks of memory and of a lost device."""
    text = "workgroup memory of a device is lost"
    with pytest.raises(ours, match=f"run: {text}") as raised, wgpu_errors("run", raw), native._checked:
        native.error_handler.handle_error(named, text)
    assert type(raised.value) is ours and type(raised.value.__cause__) is kind


def test_the_library_names_these_types(raw: Any) -> None:
    from wgpu.backends.wgpu_native._mappings import enum_int2str

    for named in native._ERRORS:
        number = getattr(native.lib, f"WGPUErrorType_{named}")
        assert enum_int2str["ErrorType"][number] == named


def test_errors_of_a_block_do_not_leave_it(raw: Any) -> None:
    with pytest.raises(ZeroDivisionError), native._checked:
        native.error_handler.handle_error("Validation", "dropped: the other error comes first")
        raise ZeroDivisionError
    with native._checked:
        pass


def test_handles_are_those_of_the_library(opened: Any, raw: Any) -> None:
    buffer = opened.storage(64, "x")
    assert native.lib.wgpuBufferGetSize(buffer._internal) == 64
    assert raw._internal and raw.queue._internal
    opened.free(buffer)


def test_a_poll_with_an_index_waits_for_this_submission_and_its_mapping(opened: Any, raw: Any) -> None:
    buffer, staging = opened.storage(64, "x"), opened.staging(64, "y")
    seen: list[int] = []
    callback = native.ffi.callback("WGPUBufferMapCallback", lambda status, *_: seen.append(status))
    request = native.ffi.new(
        "WGPUBufferMapCallbackInfo *", [native.ffi.NULL, native._MAP_REQUEST.mode, callback]
    )
    submission = native.submit(raw, (), (), [(buffer, 0, staging, 0, 64)])
    native._map(staging._internal, native._READ, 0, 64, request[0])
    assert not seen
    native._poll(raw._internal, True, native.ffi.new("WGPUSubmissionIndex *", submission))
    assert seen == [native.lib.WGPUMapAsyncStatus_Success]
    native.unmap(staging)


def test_a_tick_has_a_length(raw: Any) -> None:
    assert 0 < native.tick_nanoseconds(raw) < 1e6


def test_a_module_with_fewer_checks_is_one_of_wgpu(raw: Any) -> None:
    code = "@compute @workgroup_size(1) fn main() {}"
    modules = [
        native.shader_module(raw, "x", code, checks) for checks in (Checks.ALL, Checks.BOUNDS, Checks.NONE)
    ]
    assert len(set(map(type, modules))) == 1
    for checks in (Checks.BOUNDS, Checks.NONE):
        with pytest.raises(wgpu.GPUValidationError):
            native.shader_module(raw, "x", "fn main( {", checks)


def test_checks_have_wgpus_numbers() -> None:
    assert native.lib.WGPUShaderRuntimeChecks_BoundsChecks == Checks.BOUNDS
    loops = native.lib.WGPUShaderRuntimeChecks_ForceLoopBounding
    assert Checks.BOUNDS | loops == Checks.ALL


NEVER_RELEASED = """
import wgpu
from pteron.engine.devices.device import Checks
from pteron.engine.devices.opening import open_device
from pteron.engine.devices.wgpu import native
from wgpu.backends.wgpu_native import _api
device = open_device()
released = []
_api.GPUBuffer._release = lambda buffer: released.append(buffer.label)
device.storage(16, "first")
assert released == ["first"], released
native.never_release()
device.storage(16, "second")
assert released == ["first"], released
import os
os._exit(0)
"""


def test_a_forked_child_can_be_kept_from_releasing() -> None:
    assert subprocess.run([sys.executable, "-c", NEVER_RELEASED], timeout=60).returncode == 0
