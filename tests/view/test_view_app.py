"""The web application of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pteron._util import assets
from pteron.tools.viewer.view_app import view_app
from pteron.tools.viewer.viewer import Viewer
from tests.support.cli import pteron_cli

PROGRAM = Path(__file__).parents[1] / "data" / "sdpa_dyn.pte"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with Viewer([PROGRAM]) as viewer:
        yield TestClient(view_app(viewer), base_url="http://localhost")


def test_answers_and_refusals(client: TestClient) -> None:
    graph = client.post("/api/graph", json={})
    assert graph.status_code == 200
    assert [c["name"] for c in graph.json()["controls"]] == ["input0[1] = input1[1] = input2[1]"]
    for question, message in (
        ({"node": 99}, "there is no node 99"),
        ({"node": 0, "method": "other"}, "there is no method 'other'"),
        ({"node": 0, "file": 1}, "there is no file 1"),
        ({"node": 0, "kind": "other"}, "there is no kind of device 'other'"),
        ({}, "node: expected int"),
        ([], "expected dict"),
    ):
        refused = client.post("/api/node", json=question)
        assert refused.status_code == 400
        assert message in refused.json()["error"]
    assert (
        client.post("/api/live", content="{", headers={"Content-Type": "application/json"}).status_code == 400
    )


def test_other_pages_cannot_ask(client: TestClient) -> None:
    """A browser sends these without asking the server first. A foreign name comes with a foreign page."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert client.post("/api/files", content="{}", headers={"Content-Type": kind}).status_code == 415
        assert client.put("/api/inputs/0/x", content=b"", headers={"Content-Type": kind}).status_code == 415
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400


def test_the_page_is_complete_and_closed(client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    wanted = set(re.findall(r'(?:src|href)="(/[^"]+)"', page.text))
    seen: set[str] = set()
    while wanted:
        path = wanted.pop()
        seen.add(path)
        file = client.get(path)
        assert file.status_code == 200, path
        assert file.headers["content-security-policy"] == policy
        if path == "/dagre.js":
            continue
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", file.text), path
        assert "innerHTML" not in file.text
        found = re.findall(r'(?:from|Worker\() ?"\.?(/[\w.]+)"', file.text)
        wanted |= set(found) - seen
    assert {"/main.js", "/layout_worker.js", "/dagre.js", "/view.css"} <= seen


def test_a_missing_script_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "VENDOR", tmp_path)
    with Viewer([PROGRAM]) as viewer, pytest.raises(assets.MissingAsset, match="dagre"):
        view_app(viewer)


def test_the_command_refuses_three_files() -> None:
    done = pteron_cli("view", PROGRAM, PROGRAM, PROGRAM, code=2)
    assert "compares two" in done.stderr
