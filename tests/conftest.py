"""Fixtures: one device for the whole run, and programs that are exported once for all workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pteron.compiler.ir import op
from pteron.compiler.ir.dispatch import GPU, MANY_REGISTERS, SOFTWARE
from pteron.engine.devices.opening import Device, open_device
from pteron.engine.devices.wgpu import native
from pteron.errors import DeviceError
from tests.dynamic_shape.recording import Recording, record
from tests.dynamic_shape.table import BY_NAME
from tests.support.browser import browser
from tests.support.export import export
from tests.support.missing import missing

__all__ = ["browser"]

# No test depends on how fast the machine is.
settings.register_profile("pteron", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pteron")

# Nor on how long its paths are: error messages of the command line are not broken into lines.
os.environ["TERMINAL_WIDTH"] = "1000"  # typer reads it when it is imported

# Nor on whether it runs in the background of a shell, which lets programs ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What kinds of device routes are chosen by, and which of the features here such a one has.
KINDS: dict[str, Callable[[frozenset[str]], frozenset[str]]] = {
    "portable": lambda offered: frozenset(),
    "software": lambda offered: offered | {SOFTWARE},
    "GPU": lambda offered: frozenset({GPU}),
    "GPU with all": lambda offered: offered | {GPU, MANY_REGISTERS},
}


def open_as(kind: str | None) -> Device:
    """A new device; with the routes of a kind of device, if one is named."""
    device = open_device()
    if kind is None:
        return device
    features = KINDS[kind](device.route_features - {GPU, SOFTWARE})
    device.close()
    return open_device(features=features)


# Folders with programs that exporters wrote. What a rule cannot compute with there is a bug in the rule.
SOUND = ("conformance", "dynamic_shape", "fusion", "models", "ops", "programs")


@pytest.fixture(autouse=True)
def bugs_are_not_refusals(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in a rule stays what it is, and does not become the user's error."""
    if request.path.parent.name in SOUND:
        monkeypatch.setattr(op, "_FAULTS", ())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--take-for", choices=list(KINDS), help="run with the kernels of another kind of device")
    parser.addoption("--public-calls", action="store_true", help="call only public functions of wgpu-py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--public-calls"):
        native.AVAILABLE = False  # as with a version of wgpu-py that has other C functions


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> Iterator[Device]:
    """The GPU."""
    try:
        device = open_as(pytestconfig.getoption("--take-for"))
    except DeviceError as error:
        missing(f"no GPU: {error}")
    yield device
    device.close()


@pytest.fixture(scope="module", params=KINDS)
def routed(request: pytest.FixtureRequest) -> Iterator[Device]:
    """This device with the routes of a device with minimum features, and of each kind of device."""
    try:
        device = open_as(request.param)
    except DeviceError as error:
        pytest.fail(f"the adapter opens once, but not twice: {error}")
    yield device
    device.close()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


Once = Callable[[str, Callable[[Path], Any]], Path]
Recorded = Callable[[str], Recording]


@pytest.fixture(scope="session")
def once(shared_folder: Path) -> Once:
    """`once(name, make)` returns a folder. `make` fills it once, in the first worker that needs it."""

    def folder_made_once(name: str, make: Callable[[Path], Any]) -> Path:
        folder = shared_folder / name
        done = folder / ".done"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            _wait_for(done)
        else:
            try:
                make(folder)
            except BaseException as error:
                done.write_text(f"{type(error).__name__}: {error}")
                raise
            done.touch()
        if reason := done.read_text():
            pytest.fail(f"making {name} failed before: {reason}", pytrace=False)
        return folder

    return folder_made_once


def _wait_for(done: Path, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not done.exists():
        assert time.monotonic() < deadline, f"{done.parent} was begun by another worker, but never finished"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def recorded(once: Once) -> Recorded:
    """`recorded(name)`: the program of a case of the table, and torch's results of its calls."""
    return lambda name: Recording(once(f"cases/{name}", lambda folder: record(BY_NAME[name], folder)))


@pytest.fixture(scope="session")
def exported(once: Once) -> Callable[..., bytes]:
    """`exported(name, lambda: (module, args, ...))`: the bytes of a program, exported once per run."""

    def program(name: str, arguments: Callable[[], tuple[Any, ...]], **options: Any) -> bytes:
        def make(folder: Path) -> None:
            (folder / "program.pte").write_bytes(export(*arguments(), **options))

        return (once(f"programs/{name}", make) / "program.pte").read_bytes()

    return program
