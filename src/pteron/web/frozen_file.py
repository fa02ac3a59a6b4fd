"""Files of a frozen program: a description, a plan for each variant, and the weights in shards.

`model.json` names the other files. Their names contain a digest of their contents, so a browser may keep them
for ever. A plan is compressed with gzip: the lengths of a JSON header and of the constant parameters in four
bytes each, and both, each padded to four bytes. Weights are not compressed: they hardly
become smaller.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pteron.compiler.plan.memory import aligned
from pteron.engine.devices.recording import Write
from pteron.web.freeze import FORMAT, FrozenMethod
from pteron.web.variants import Variant

SHARD_NBYTES = 16 << 20
MANIFEST = "model.json"


def write_frozen(
    folder: Path, frozen: Sequence[tuple[Variant, FrozenMethod]], shard_nbytes: int = SHARD_NBYTES
) -> dict[str, Any]:
    """Write all files, and return the description."""
    _, first = frozen[0]
    spans, shards = _write_weights(folder, first, shard_nbytes)
    plans = {variant: packed(method) for variant, method in frozen}
    variants = [
        {
            "name": variant.name,
            **variant.needs,
            "limits": _limits(method),
            "plan": _write(folder, f"plan-{variant.name}", plans[variant]),
        }
        for variant, method in frozen
        if not any(plans[variant] == plans[other] for other in plans if other.is_more_general_than(variant))
    ]
    description = {"format": FORMAT, "variants": variants, "shards": shards, "weights": spans}
    (folder / MANIFEST).write_text(json.dumps(description), encoding="utf-8")
    return description


def packed(method: FrozenMethod) -> bytes:
    header, sections = method.packed()
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = [text.ljust(aligned(len(text), 4)), *sections]
    return gzip.compress(struct.pack("<2I", *map(len, parts)) + b"".join(parts), mtime=0)


def _limits(method: FrozenMethod) -> dict[str, int]:
    """The limits of WebGPU that the program needs. A browser gives more than the defaults if asked."""
    header = method.header
    bound = [group[i + 2] for group in header["groups"] for i in range(1, len(group), 3)]
    largest = max(header["buffers"], default=0)
    return {"maxBufferSize": largest, "maxStorageBufferBindingSize": max(bound, default=0)}


def _write_weights(
    folder: Path, method: FrozenMethod, shard_nbytes: int
) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """The place of each buffer in the stream of weights, (first byte, number of bytes), and the shards."""
    spans, place = [], 0
    for writes in method.weights:
        nbytes = aligned(max(write.offset + len(write.data) for write in writes), 4)
        spans.append([place, nbytes])
        place += nbytes
    shards = _cut(_stream(method.weights), shard_nbytes)
    return spans, [_write(folder, f"weights-{number:03}", data) for number, data in enumerate(shards)]


def _stream(buffers: Iterable[Sequence[Write]]) -> Iterator[bytes | memoryview]:
    """The bytes of all buffers. Each is padded to a multiple of four."""
    for writes in buffers:
        place = 0
        for write in writes:
            yield bytes(write.offset - place)
            yield write.data
            place = write.offset + len(write.data)
        yield bytes(aligned(place, 4) - place)


def _cut(pieces: Iterable[bytes | memoryview], nbytes: int) -> Iterator[bytes]:
    """The same bytes in blocks of one size. Only the last may be shorter."""
    block = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            taken = rest[: nbytes - len(block)]
            block += taken
            rest = rest[len(taken) :]
            if len(block) == nbytes:
                yield bytes(block)
                block.clear()
    if block:
        yield bytes(block)


def _write(folder: Path, stem: str, data: bytes) -> dict[str, Any]:
    name = f"{stem}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    (folder / name).write_bytes(data)
    return {"file": name, "nbytes": len(data)}
