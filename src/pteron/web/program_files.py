"""From a `.pte` file to the files of a frozen program, which `pteron.js` loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pteron._util.progress import Progress
from pteron.compiler.lower.bounds import GivenShapes
from pteron.compiler.pipeline import GraphOptions, Target, lower
from pteron.errors import InputError
from pteron.pte.file import ProgramFile
from pteron.web.freeze import FrozenMethod, freeze
from pteron.web.frozen_file import SHARD_NBYTES, write_frozen
from pteron.web.variants import VARIANTS, Variant, chosen

ALL = tuple(variant.name for variant in VARIANTS)


def write_program(
    source: Any,
    folder: Path,
    *,
    method: str = "forward",
    variants: Sequence[str] = ALL,
    data_path: Sequence[str | Path] = (),
    kv_dtype: str | None = None,
    kv_length: int | None = None,
    shapes: GivenShapes | None = None,
    shard_nbytes: int = SHARD_NBYTES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Freeze a method of a program, and write its files to a folder. Returns the contents of `model.json`.

    shapes: smaller largest shapes than the file's (see `pteron.load`).
    variants: the kinds of device to freeze it for (see `pteron.web.variants`).
    """
    say = progress or (lambda *_: None)
    wanted = chosen(variants)
    with ProgramFile.open(source, list(data_path)) as file:
        if method not in file.method_names:
            raise InputError(f"there is no method {method!r}; the methods are {', '.join(file.method_names)}")
        options = GraphOptions(kv_dtype=kv_dtype, kv_length=kv_length, shapes=shapes)
        lowered = lower(file, [method], options)
        frozen: list[tuple[Variant, FrozenMethod]] = []
        for number, variant in enumerate(wanted):
            say(f"planning for the variant {variant.name}", number, len(wanted))
            frozen.append((variant, freeze(lowered.plan(Target(variant.route_features))[method])))
        say("writing the weights", len(wanted), len(wanted))
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("plan-*-*.bin"), *folder.glob("weights-*-*.bin")]:
            old.unlink()
        return write_frozen(folder, frozen, shard_nbytes)
