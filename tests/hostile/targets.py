"""What mutants are thrown at. Each target takes a seeded generator; a PteronError is a good answer."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import pteron
from pteron.compiler.ir.values import SymInt, Tensor
from pteron.compiler.pipeline import lower
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.memory import plan_memory
from pteron.engine.devices.opening import Device, open_device
from pteron.errors import FormatError, PteronError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_methods
from tests.hostile import seeds
from tests.hostile.mutate import INTEGERS, Corpus, damage_bytes

RUN_ELEMENTS = 2**20  # larger inputs only take time
Mutate = Callable[[Random], bytes]


@cache
def corpus() -> Corpus:
    return Corpus([*seeds.exported(), *seeds.of_every_operator()], seeds.operator_names())


@cache
def xnnpack_corpus() -> Corpus:
    return Corpus(seeds.for_xnnpack(), seeds.operator_names())


@cache
def device() -> Device:
    return open_device()


def program(rng: Random) -> bytes:
    return corpus().mutant(rng)


def for_xnnpack(rng: Random) -> bytes:
    return xnnpack_corpus().mutant(rng)


def plan(data: bytes) -> None:
    """Parse, lower, fuse, and plan shapes and memory, as `load` does."""
    with ProgramFile.open(data) as file:
        lowered = lower(file, islice(file.method_names, 4))
        for name in lowered.graphs:
            live = lowered.plan_method(name)
            find_sizes(live)
            plan_memory(live.graph, live.layout, live.scratch())


def inspect(data: bytes) -> None:
    with ProgramFile.open(data) as file:
        inspect_methods(file, file.method_names)


def run(data: bytes) -> None:
    """Load, and call every method at its largest shapes, then at smaller ones."""
    with pteron.load(data, device=device(), tune=False) as loaded:
        for name in islice(loaded.method_names, 4):
            method = loaded.method(name)
            for halved in (False, True):
                inputs = [
                    _input(port, method.inputs[n].dynamic_dims, halved)
                    for n, port in enumerate(method.graph.inputs)
                ]
                try:
                    method.execute(inputs)
                except PteronError:
                    continue


def _input(port: Any, dynamic: tuple[int, ...], halved: bool) -> Any:
    if isinstance(port.value, SymInt):
        return 0
    if not isinstance(port.value, Tensor):
        return None
    shape = [n // 2 if halved and d in dynamic else n for d, n in enumerate(port.max_shape)]
    if np.prod(shape, dtype=float) > RUN_ELEMENTS:
        raise FormatError("the inputs are too large to try")
    return np.zeros(shape, port.host_type)


def data_file(rng: Random) -> bytes:
    return damage_bytes(seeds.separate()[1], rng, [*seeds.separate(), *seeds.exported()[:4]])


def plan_with_data(data: bytes) -> None:
    program, _ = seeds.separate()
    pteron.check(program, data_path=[data])  # type: ignore[list-item]


def language_model(rng: Random) -> bytes:
    """Most of a GGUF file is weights: changes go to the head, where the counts, kinds and lengths are."""
    whole = seeds.language_model()
    end = _head_length(whole)
    head, rest = whole[:end], whole[end:]
    for _ in range(rng.choice((1, 1, 2, 4))):
        if rng.random() < 0.6:
            at = rng.randrange(max(len(head) - 8, 1))
            number = struct.pack("<Q", rng.choice(INTEGERS) & (2**64 - 1))[: rng.choice((1, 4, 8))]
            head = head[:at] + number + head[at + len(number) :]
        else:
            head = damage_bytes(head, rng, [whole])
    return head + (rest if rng.random() < 0.95 else damage_bytes(rest, rng, [whole]))


@cache
def _head_length(whole: bytes) -> int:
    return whole.rindex(b"weight") + 64


def convert(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(data)
        pteron.convert(path, Path(folder) / "model.pte", max_seq_len=8, max_context=16)


# By name: how a mutant is made, and what it is given to.
TARGETS: dict[str, tuple[Mutate, Callable[[bytes], None]]] = {
    "plan": (program, plan),
    "xnnpack": (for_xnnpack, plan),
    "inspect": (program, inspect),
    "run": (program, run),
    "ptd": (data_file, plan_with_data),
    "gguf": (language_model, convert),
}


def mutant(target: str, number: int) -> bytes:
    """The mutant of a number: the same on every machine."""
    return TARGETS[target][0](Random(f"{target} {number}"))
