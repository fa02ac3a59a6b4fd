"""Third-party scripts of the pages."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tarfile
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType

import pytest

from pteron._util import assets

ROOT = Path(__file__).parents[2]


def test_a_missing_script_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets, "VENDOR", tmp_path)
    with pytest.raises(assets.MissingAsset, match=r"'dagre\.js' is missing.*python scripts/assets\.py"):
        assets.find("dagre.js")


def test_each_script_has_its_licence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets, "VENDOR", tmp_path)
    for name in ("dagre.js", "dagre.LICENSE"):
        (tmp_path / name).touch()
    assert assets.find("dagre.js") == tmp_path / "dagre.js"
    assert assets.licence("dagre.js") == tmp_path / "dagre.LICENSE"


def test_packages_have_exact_versions_and_name_no_host() -> None:
    manifest = (ROOT / "javascript" / "package.json").read_text(encoding="utf-8")
    versions = re.findall(r'"@?[\w/.-]+": "([^"]+)"', manifest.split('"dependencies"')[1])
    assert versions
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    assert "resolved" not in (ROOT / "javascript" / "package-lock.json").read_text(encoding="utf-8")


@pytest.fixture()
def npm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return import_module("npm_packages")


class Registry:
    """A folder that answers as a registry does, and a project that wants the package `@a/b` of it."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.url, self.project = (folder / "registry").as_uri(), folder / "project"
        archive = folder / "registry" / "@a" / "b" / "-" / "b-1.2.3.tgz"
        archive.parent.mkdir(parents=True)
        with tarfile.open(archive, "w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, BytesIO(content))
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        self.lock({"version": "1.2.3", "integrity": f"sha512-{digest}"})

    def lock(self, package: dict[str, str]) -> None:
        self.project.mkdir(exist_ok=True)
        packages = {"": {}, "node_modules/@a/b": package}
        (self.project / "package-lock.json").write_text(json.dumps({"packages": packages}))


def test_packages_are_installed_without_npm(
    npm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path, {"package/dist/x.js": b"1", "package/../../../outside": b"2"})
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry.url)
    npm.install(registry.project)
    file = registry.project / "node_modules" / "@a" / "b" / "dist" / "x.js"
    assert file.read_bytes() == b"1"
    assert not list(tmp_path.rglob("outside"))
    file.unlink()
    npm.install(registry.project)  # nothing to do: the lock file is the same
    assert not file.exists()


def test_a_package_that_is_another_one_is_refused(
    npm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path, {"package/x.js": b"1"})
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry.url)
    registry.lock({"version": "1.2.3", "integrity": "sha512-AAAA"})
    with pytest.raises(npm.DownloadError, match=r"@a/b 1\.2\.3 is not the package of the lock file"):
        npm.install(registry.project)
    registry.lock({"version": "9.9.9", "integrity": "sha512-AAAA"})
    with pytest.raises(npm.DownloadError, match=r"@a/b 9\.9\.9 cannot be downloaded"):
        npm.install(registry.project)
    assert not list(registry.project.rglob("x.js"))
