"""Which GPU is taken, on machines that have several."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import wgpu

from pteron.engine.devices.wgpu import adapters
from pteron.errors import DeviceError


def handle(name: str, kind: str, backend: str = "Vulkan", vendor: int = 0x8086) -> Any:
    info = {"device": name, "adapter_type": kind, "backend_type": backend, "description": "driver 1"}
    info["vendor_id"] = vendor
    return SimpleNamespace(info=info, features=["subgroup"], limits={"max-bind-groups": 4})


SOFTWARE, INTEGRATED, DISCRETE = (
    handle("llvmpipe", "CPU"),
    handle("Intel Iris", "IntegratedGPU"),
    handle("NVIDIA RTX", "DiscreteGPU"),
)


@pytest.fixture()
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`machine(handle, ...)`: this machine has these adapters."""
    monkeypatch.delenv("PTERON_DEVICE", raising=False)
    listed = adapters.adapters.__wrapped__  # without its memory

    def has(*handles: Any) -> None:
        monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: list(handles))
        found = listed()
        monkeypatch.setattr(adapters, "adapters", lambda: found)

    return has


def test_the_best_is_taken(machine: Any) -> None:
    machine(SOFTWARE, INTEGRATED, DISCRETE)
    assert [adapter.name for adapter in adapters.adapters()] == ["NVIDIA RTX", "Intel Iris", "llvmpipe"]
    assert adapters.choose().name == "NVIDIA RTX"


def test_opengl_is_not_used(machine: Any) -> None:
    machine(handle("NVIDIA RTX", "DiscreteGPU", "OpenGL"), SOFTWARE)
    assert adapters.choose().name == "llvmpipe"


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (1, "Intel Iris"),
        ("1", "Intel Iris"),
        ("intel", "Intel Iris"),
        ("software", "llvmpipe"),
        ("cpu", "llvmpipe"),
    ],
)
def test_another_is_taken_by_number_or_name(machine: Any, wanted: Any, name: str) -> None:
    machine(SOFTWARE, INTEGRATED, DISCRETE)
    assert adapters.choose(wanted).name == name


def test_the_environment_names_one_and_an_argument_comes_first(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(SOFTWARE, INTEGRATED, DISCRETE)
    monkeypatch.setenv("PTERON_DEVICE", "iris")
    assert adapters.choose().name == "Intel Iris"
    assert adapters.choose("nvidia").name == "NVIDIA RTX"


def test_what_is_not_there_is_refused_with_what_is(machine: Any) -> None:
    machine(INTEGRATED)
    with pytest.raises(DeviceError, match="no GPU adapter matches 'nvidia'; the adapters are 0: Intel Iris"):
        adapters.choose("nvidia")
    with pytest.raises(DeviceError, match="To get a software adapter, install a Vulkan driver"):
        adapters.choose("software")
    machine()
    with pytest.raises(DeviceError, match="no GPU adapter was found: install a Vulkan driver"):
        adapters.choose()


@pytest.mark.parametrize("vendor, many", [(0x1002, True), (0x10DE, True), (0x8086, False), (0x10005, False)])
def test_lanes_of_some_makers_have_many_registers(machine: Any, vendor: int, many: bool) -> None:
    machine(handle("one", "DiscreteGPU", vendor=vendor))
    assert adapters.adapters()[0].has_many_registers == many
