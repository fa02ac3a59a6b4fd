"""Tests that need a GPU, but not torch."""

from tests.support.needs import no_torch

__all__ = ["no_torch"]
