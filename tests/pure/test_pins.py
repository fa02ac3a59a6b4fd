"""The pinned packages fit together, and fit every Python that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.support.missing import missing

ROOT = Path(__file__).parents[2]
PYTHONS = ["3.11.2", "3.12.0", "3.13.0", "3.14.0"]  # 3.11.2 is Debian 12's
SETS = ["llm", "dev"]

Pins = dict[NormalizedName, Version]


def lines(name: str) -> Iterator[Requirement]:
    for line in (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines():
        if text := re.split(r"(?:^|\s)#", line)[0].strip():
            yield Requirement(text)


def environment(python: str) -> dict[str, str]:
    """What a marker sees on Linux with this Python."""
    short = python.rpartition(".")[0]
    known = {**default_environment(), "platform_system": "Linux", "sys_platform": "linux"}
    return {**known, "platform_machine": "x86_64", "python_version": short, "python_full_version": python}


def applies(requirement: Requirement, python: str, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**environment(python), "extra": extra})


def pins(name: str, python: str) -> Pins:
    made: Pins = {}
    for requirement in lines(name):
        if applies(requirement, python):
            ((operator, version),) = ((s.operator, s.version) for s in requirement.specifier)
            assert operator == "==", f"{requirement} is not exact"
            made[canonicalize_name(requirement.name)] = Version(version)
    return made


def installed(name: str, version: Version) -> Distribution | None:
    """What is known here of a pinned package, if this version is installed."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    return found if Version(found.version).public == version.public else None


def test_the_oldest_and_the_newest_python_are_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"
    stated = [name for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert stated == [f"Programming Language :: Python :: {python.rpartition('.')[0]}" for python in PYTHONS]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["llm", "dev", "dev-models"])
def test_every_package_takes_this_python(name: str, python: str) -> None:
    known = 0
    for package, version in pins(name, python).items():
        if found := installed(package, version):
            wanted = found.metadata["Requires-Python"]
            assert not wanted or Requirement(f"python{wanted}").specifier.contains(python), (
                f"{package}=={version} needs Python {wanted}"
            )
            known += 1
    if not known:
        missing(f"no package of requirements/{name}.txt is installed")


@pytest.mark.parametrize("name", ["llm", "llm-models", "dev", "dev-models"])
def test_every_pin_is_locked(name: str) -> None:
    """The lock has the same versions, each with the hash of a file."""
    entries = (ROOT / "requirements" / f"{name}.lock").read_text("utf-8").replace("\\\n", "").splitlines()
    hashed = {Requirement(entry.partition("--hash=sha256:")[0]) for entry in entries if "--hash" in entry}
    assert len(hashed) == len(entries), "an entry has no hash: run `make lock`"
    wanted = {line for line in lines(name) if line.name != "torch"}  # it has other files for CPUs

    def named(requirements: set[Requirement]) -> set[tuple[str, str]]:
        return {(canonicalize_name(each.name), str(each.specifier)) for each in requirements}

    assert named(hashed) == named(wanted), "run `make lock`"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", SETS)
def test_what_a_package_needs_is_pinned(name: str, python: str) -> None:
    """So an installation takes the same packages on every day."""
    have = pins(name, python)
    for package, version in have.items():
        found = installed(package, version)
        for requirement in map(Requirement, found.requires or () if found else ()):
            cuda = package == "torch" and "Linux" in str(requirement.marker)  # the set-up takes the CPU build
            if cuda or not applies(requirement, python):
                continue
            pinned = have.get(canonicalize_name(requirement.name))
            assert pinned, f"{package} needs {requirement}, which is not in requirements/{name}.txt"
            assert requirement.specifier.contains(pinned, prereleases=True), f"{package} needs {requirement}"


@pytest.mark.parametrize("name", ["dependencies", "llm", "server", "view", "data", "stores", "export", "dev"])
def test_the_pins_fit_the_package(name: str) -> None:
    """What the extras and groups of Pteron allow, the pins are."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = read["project"]
    wanted = (project | project["optional-dependencies"] | read["dependency-groups"])[name]
    have = pins("dev", PYTHONS[0]) | pins("dev-models", PYTHONS[0])
    for requirement in map(Requirement, wanted):
        if requirement.name != "pteron":
            assert requirement.specifier.contains(have[canonicalize_name(requirement.name)]), requirement
