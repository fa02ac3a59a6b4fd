"""Kernels that compute something wrong, on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pteron.engine import executor


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Change the text of a kernel."""
    healthy = executor.shader_text

    def damage(name: str, before: str, after: str) -> None:
        def text(kernel: Any, dispatch: Any) -> str:
            made = healthy(kernel, dispatch)
            if kernel.name != name:
                return made
            assert before in made
            return made.replace(before, after)

        monkeypatch.setattr(executor, "shader_text", text)

    yield damage
