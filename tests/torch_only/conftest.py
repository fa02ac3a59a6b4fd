"""Tests that need torch and ExecuTorch, but no GPU."""

from tests.support.needs import no_gpu

__all__ = ["no_gpu"]
