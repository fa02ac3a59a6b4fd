"""Digests of what the converter writes for tiny models. If it writes other files, it needs a new version.

    RECORD=1 python -m pytest -n 0 tests/llm/test_{formats,families,embedder}.py

notes the digests of this version again, after VERSION in `conversion_cache.py` was raised.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

from pteron.llm.gguf.conversion_cache import VERSION
from tests.llm.tiny_models import delegate_of

RECORD = Path(__file__).with_suffix(".json")


def check_bytes(name: str, path: Path) -> None:
    """For a model whose weights are the same on every machine."""
    _check(name, path.read_bytes())


def check_graph(name: str, path: Path) -> None:
    """For a model whose weights are torch's random numbers, which depend on the CPU: without the weights."""
    file, delegate = delegate_of(path)
    constants = tuple(replace(constant, named_key=None) for constant in delegate.graph.constants)
    facts = [file.plan(method) for method in file.method_names if method != "forward"]
    description = bytes(file.named_data("pteron.model.json")).decode()
    _check(name, repr((replace(delegate.graph, constants=constants), facts, description)).encode())


def _check(name: str, contents: bytes) -> None:
    known = json.loads(RECORD.read_text("utf-8"))
    digest = hashlib.sha256(contents).hexdigest()[:16]
    if os.environ.get("RECORD"):
        if known["version"] != VERSION:
            known = {"version": VERSION, "digests": {}}
        digests = known["digests"]
        assert digests.setdefault(name, digest) == digest, f"{name}: raise VERSION first"
        RECORD.write_text(json.dumps({**known, "digests": dict(sorted(digests.items()))}, indent=1) + "\n")
    assert known["version"] == VERSION, f"note the digests of version {VERSION}: see {__name__}"
    assert known["digests"].get(name) == digest, (
        f"{name}: the converter writes another file than version {VERSION} did. If it is meant to, raise "
        f"VERSION in conversion_cache.py, or users keep the old files; then see {__name__}"
    )
