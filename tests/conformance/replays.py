"""The calls of programs that the backend's driver calls more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from executorch.backends.webgpu.test.ops import test_rope_hf as rope
from executorch.backends.webgpu.test.ops import test_sdpa as attention

from tests.conformance.unit_programs import Args, Lowered, telling


def calls_of(program: Lowered) -> list[Args]:
    """All calls of a program, in order: the calls of its replay, or one call with the export's inputs."""
    replay = _REPLAYS.get(type(program.module))
    return list(replay(program.args)) if replay else [telling(program.args)]


def _position(value: int) -> torch.Tensor:
    return torch.tensor([value])


def _decode_steps(args: Args) -> Iterator[tuple[torch.Tensor, ...]]:
    """The new query, key and value of each step of the exported sequence."""
    heads, width = args[0].shape[2:]
    (sequence,) = [s for s in attention.DYNAMIC_REPLAY_SEQS if (s.hq, s.d) == (heads, width)]
    for step in range(attention.DYN_DECODE_STEPS):
        yield attention._step_inputs(sequence, step, 1)


def _decode_with_caches_passed(args: Args) -> Iterator[Args]:
    keys, values = args[3].clone(), args[4].clone()
    for step, (q, k, v) in enumerate(_decode_steps(args)):
        yield q, k, v, keys.clone(), values.clone(), _position(step)
        keys[:, step], values[:, step] = k[:, 0], v[:, 0]


def _decode_with_caches_kept(args: Args) -> Iterator[Args]:
    for step, (q, k, v) in enumerate(_decode_steps(args)):
        yield q, k, v, _position(step)


def _rotate(args: Args) -> Iterator[Args]:
    most = args[0].shape[1]
    if most == rope.DYNAMIC_SEQ:
        cases = [(most, position) for position in rope.DYNAMIC_POSITIONS]
    else:
        cases = list(rope.DYNAMIC_SEQUENCE_CASES)
    for length, position in cases:
        *operands, _ = rope._dynamic_inputs(length)
        yield *operands, torch.full_like(args[-1], position)


_REPLAYS: dict[type, Callable[[Args], Iterator[Any]]] = {
    attention.DynamicSdpaModule: _decode_with_caches_passed,
    attention.DecodeCacheModule: _decode_with_caches_kept,
    rope.DynamicHfRope: _rotate,
}
