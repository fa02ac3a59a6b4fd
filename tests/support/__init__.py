"""Shared helpers of tests: programs to run, and one way to poison, run and compare them."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"  # small real files: of stock ExecuTorch, and of older versions
