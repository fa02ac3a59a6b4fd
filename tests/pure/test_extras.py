"""The hint for a missing package can be followed, also in a checkout, which is not on an index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pteron._util.extras import MissingExtra, needs

ROOT = Path(__file__).parents[2]
METADATA = """Metadata-Version: 2.4
Name: pteron
Version: 9
Requires-Dist: numpy>=2.0
Requires-Dist: numpy>=2.0; extra == 'server'
Requires-Dist: absent-server[fast]<3,>=1.2; extra == 'server'
Requires-Dist: absent_metrics; python_version > '3' and extra == "server"
Requires-Dist: absent-reader==1; extra == 'data'
"""


def hint(extra: str) -> str:
    with pytest.raises(MissingExtra) as told, needs(extra, "to serve a model"):
        import absent_server.routes  # type: ignore[import-not-found]  # noqa: F401
    return str(told.value).partition("is needed: ")[2]


def test_the_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pteron-9.dist-info").mkdir()
    (tmp_path / "pteron-9.dist-info" / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(tmp_path)
    assert hint("server") == (
        "pip install 'absent-server[fast]<3,>=1.2' absent_metrics, "
        "or, in a checkout of Pteron, pip install '.[server]'"
    )
    assert hint("data") == "pip install absent-reader==1, or, in a checkout of Pteron, pip install '.[data]'"


def test_without_metadata_the_module_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert hint("server") == "pip install absent_server, or, in a checkout of Pteron, pip install '.[server]'"


def test_no_text_installs_from_an_index() -> None:
    """Remove this test when Pteron is on an index."""
    places = [ROOT / folder for folder in ("src", "docs", "examples", "benchmarks", "scripts", ".github")]
    texts = [*ROOT.glob("*.md"), *(path for place in places for path in place.rglob("*"))]
    readable = {".py", ".md", ".ipynb", ".sh", ".yml", ".html", ".js"}
    advice = re.compile(r"pip3? install [^`\n#]*?(?<![\w./-])['\"]?pteron(?![-\w.])(?!==\$)")
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in texts
        if path.suffix in readable and "vendor" not in path.parts and path.is_file()
        for found in advice.finditer(path.read_text("utf-8"))
    ]
    assert not wrong, f"Pteron is not on an index: advise pip install '.[extra]' in a checkout: {wrong}"


def test_every_extra_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    texts = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    used = {name for text in texts for name in re.findall(r"(?:needs|missing)\(\s*\"(\w+)\"", text)}
    assert {"llm", "server", "view", "export"} <= used <= set(known)
