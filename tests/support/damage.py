"""Kernels that compute something wrong, on purpose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pteron.engine import executor


def damage(monkeypatch: pytest.MonkeyPatch, name: str, before: str, after: str) -> None:
    """Change the text of a kernel."""
    healthy: Callable[[Any, Any], str] = executor.shader_text

    def text(kernel: Any, dispatch: Any) -> str:
        made = healthy(kernel, dispatch)
        if kernel.name != name:
            return made
        assert before in made
        return made.replace(before, after)

    monkeypatch.setattr(executor, "shader_text", text)


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Change the text of a kernel, for one test."""
    return partial(damage, monkeypatch)
