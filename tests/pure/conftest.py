"""Tests that need neither a GPU nor torch."""

from tests.support.needs import no_gpu, no_torch

__all__ = ["no_gpu", "no_torch"]
