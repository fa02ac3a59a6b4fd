"""The browser of these tests has a WebGPU adapter, and pages come from a web server with ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import opened, serving

pytestmark = pytest.mark.browser


def test_webgpu(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>empty</title><link rel=icon href=data:>")
    (tmp_path / "some.bin").write_bytes(bytes(range(100)))
    with serving(tmp_path) as url, opened(browser, url) as page:
        assert page.evaluate("async () => Boolean(await navigator.gpu.requestAdapter())")
        part = "fetch('some.bin', {headers: {Range: 'bytes=10-12'}}).then(r => r.arrayBuffer())"
        assert page.evaluate(f"async () => [...new Uint8Array(await {part})]") == [10, 11, 12]
