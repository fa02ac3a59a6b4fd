"""Third-party scripts of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pteron import assets

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
