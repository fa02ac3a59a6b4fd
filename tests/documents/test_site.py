"""The site builds without a warning: pages, links, anchors, and the names in the API reference."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_it_downloads_nothing(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|link)\b[^>]*(?:src|href)=\"?(https?:[^\" >]+)")
    for page in site.rglob("*.html"):
        assert not loads.findall(page.read_text("utf-8")), page


def test_the_commands_have_their_options(site: Path) -> None:
    page = (site / "commands.html").read_text("utf-8")
    for text in ("pteron verify", "--save-failure", "PTERON_API_KEY", "pteron cache clear"):
        assert text in page, text


def test_the_reference_has_arguments_and_examples(site: Path) -> None:
    page = (site / "api" / "programs.html").read_text("utf-8")
    for text in ("data_path", "pteron.Method.why_static", "The next valid call works"):
        assert text.lower() in page.lower(), text
