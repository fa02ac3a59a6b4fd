"""The page in a real browser."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pteron.tools.viewer.view_server import PageServer
from pteron.tools.viewer.viewer import Viewer
from tests.support.browser import opened
from tests.view.programs import BLOCKS, LONGEST

pytestmark = pytest.mark.browser


@contextmanager
def serving(*files: Path) -> Iterator[str]:
    with Viewer(files) as viewer, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        ready = threading.Event()
        server = PageServer(viewer, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        ready.wait()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def url(program: Path) -> Iterator[str]:
    with serving(program) as url:
        yield url


@contextmanager
def shown(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    with opened(browser, url, viewport={"width": 1400, "height": 900}, **options) as page:
        page.locator("body[aria-busy=false]").wait_for()
        yield page


def find(page: Any, text: str) -> None:
    """Search, and go to the first result."""
    page.keyboard.press("/")
    page.locator("#query").fill(text)
    page.keyboard.press("Enter")
    page.locator("#details h3").wait_for()


def test_sizes_kernels_and_memory(browser: Any, url: str) -> None:
    with shown(browser, url) as page:
        find(page, 'product "block 2 of"')
        assert page.locator("#details h3").inner_text().startswith("linear")  # with what was fused
        assert f"block 2 of {BLOCKS}" in page.locator("#details .where").first.inner_text()
        result = page.locator(".shapes tr", has_text="→ out").locator(".value")
        assert result.inner_text() == f"{LONGEST}×64 float32\n[n, 64]", "the live shape, and its formula"
        grid = page.locator("details.kernel summary").first.inner_text()

        page.get_by_label("input0[1] = input1[1]", exact=True).fill("5")
        result.filter(has_text=f"5×64 float32 of {LONGEST}×64").wait_for()
        assert "linear_with_epilogue: " in page.locator("#changes li").first.inner_text()
        assert page.locator(".routes .chosen").count() == 1
        assert page.locator("details.kernel summary").first.inner_text() != grid
        page.locator("details.kernel summary").first.click()
        assert "@compute" in page.locator("details.kernel pre").first.inner_text()

        page.get_by_label("input0[1] = input1[1], as a number").fill(str(LONGEST))
        page.keyboard.press("Enter")
        page.locator("#details .shapes:not(:has(.max))").wait_for()
        assert page.locator("details.kernel summary").first.inner_text() == grid

        facts = page.locator("#memory .facts").inner_text()
        assert "activations" in facts and "without sharing" in facts
        chart = page.locator("#memory canvas")
        box = chart.bounding_box()
        tip = page.locator("#tip")
        for share in range(1, 20):  # somewhere in the middle of the first buffer lies a tensor
            page.mouse.move(box["x"] + box["width"] * share / 20, box["y"] + 70)
            if tip.is_visible():
                break
        assert "live of" in tip.inner_text()


def test_the_graph_by_mouse_and_keys(browser: Any, url: str) -> None:
    with shown(browser, url) as page:
        title, status = page.locator("#details h3"), page.locator("#status")
        page.locator(".pane canvas").focus()
        page.keyboard.press("c")
        status.filter(has_text="All groups are folded").wait_for(state="attached")
        page.keyboard.press("f")
        box = page.locator(".pane canvas").bounding_box()
        for share in range(1, 30):  # one of these places lies on the group
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * share / 30)
            if title.count() and title.inner_text() == f"{BLOCKS} equal blocks":
                break
        status.filter(has_text=f"{BLOCKS} equal blocks is open").wait_for(state="attached")
        page.keyboard.press("ArrowRight")  # the first node
        page.locator("#details .where", has_text=f"block 1 of {BLOCKS}").wait_for()
        page.keyboard.press("ArrowLeft")
        title.filter(has_text=f"block 1 of {BLOCKS}").wait_for()
        page.keyboard.press("ArrowLeft")
        status.filter(has_text=f"block 1 of {BLOCKS} is folded").wait_for(state="attached")
        page.keyboard.press("ArrowDown")
        title.filter(has_text=f"block 2 of {BLOCKS}").wait_for()
        page.keyboard.press("Escape")
        page.locator("#details .empty").wait_for()
        page.keyboard.press("o")
        assert page.locator("#operators tbody tr").count() > 3
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").wait_for()


@pytest.mark.usefixtures("device")
def test_times_and_values(browser: Any, url: str) -> None:
    with shown(browser, url) as page:
        page.get_by_role("button", name="Values", exact=True).click()
        page.locator("#run-note", has_text="All values are finite").wait_for()
        find(page, 'product "block 1 of"')
        page.locator(".shapes tr", has_text="→ out").get_by_role("button", name="values").click()
        assert "deviation" in page.locator(".tensor .facts").inner_text()
        assert page.locator(".tensor canvas").count() == 2
        page.locator(".shapes tr", has_text="weight").get_by_role("button", name="constant").click()
        page.locator(".tensor .plane").nth(1).wait_for()
        for _ in range(2):
            page.get_by_role("button", name="Profile", exact=True).click()
            page.locator("#run-profile:enabled").wait_for()
        assert page.get_by_label("Second profile").input_value() == "1"
        assert page.locator("#time th", has_text="ratio").count() == 1
        page.get_by_role("button", name="by node").click()
        page.locator("#time tbody tr").first.focus()
        page.keyboard.press("Enter")
        node = page.locator("#time tbody td").first.inner_text().split()[0]
        page.locator("#details .where", has_text=re.compile(rf"^node {node}\b")).wait_for()


def test_two_files(browser: Any, program: Path) -> None:
    other = Path(__file__).parents[1] / "data" / "dyn_rms.pte"
    with serving(program, other) as url, shown(browser, url) as page:
        assert page.locator(".pane canvas").count() == page.locator("#memory canvas").count() == 2
        assert page.locator("#controls label").all_inner_texts() == ["input0[1] = input1[1]", "input0[2]"]
        page.get_by_label("input0[2]", exact=True).fill("7")
        find(page, "rms_norm")
        page.locator("#details .value", has_text="of").first.wait_for()
        page.keyboard.press("o")
        assert page.locator("#operators th", has_text="dyn_rms.pte").count() == 1


def test_a_program_that_cannot_run_says_why(browser: Any) -> None:
    missing = Path(__file__).parents[1] / "hostile" / "seeds" / "weights.portable.pte"
    with serving(missing) as url, shown(browser, url) as page:
        assert "pass the .ptd file" in page.get_by_role("alert").inner_text()


def test_dark_and_light(browser: Any, url: str) -> None:
    def background(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(re.findall(r"\d+", colour)[0])

    for scheme, is_dark in (("dark", True), ("light", False)):
        with shown(browser, url, color_scheme=scheme) as page:
            assert (background(page) < 128) == is_dark
            page.get_by_role("button", name="Switch between dark and light").click()
            assert (background(page) < 128) != is_dark


def test_everything_has_a_name(browser: Any, url: str) -> None:
    unnamed = """() => [...document.querySelectorAll("button, input, select, canvas")]
        .filter(e => !(e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    with shown(browser, url) as page:
        find(page, 'product "block 1 of"')
        assert page.evaluate(unnamed) == []
