"""Runs a kernel, wave by wave: a small emulator of AMD's RDNA GPUs.

It follows the real control flow with the real parameters, and computes the real results. It shows every
executed instruction to an observer, with the addresses of its memory accesses. An instruction that it does
not know raises `Unsupported`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.memory import buffer_access, local_access, local_add, permute, scalar_load
from benchmarks.gpu_model.emulator.scalar import scalar
from benchmarks.gpu_model.emulator.text import IDLE, M32, SCC, Instruction, Unsupported, parse
from benchmarks.gpu_model.emulator.vector import vector
from benchmarks.gpu_model.emulator.wave import DESCRIPTORS, Wave


def _prepare(text: str, generation: int) -> list[Instruction]:
    """Parse a program, and make every instruction executable."""
    program = parse(text, generation)
    for instruction in program:
        for part in (instruction, instruction.second):
            if part is not None and part.run is None:
                part.run = _runner(part)
    return program


def _runner(i: Instruction) -> Callable[[Wave], Any]:
    name = i.name
    if name in IDLE or name.startswith(("s_waitcnt", "s_wait_", "s_cbranch", "s_branch")):
        return lambda w: None
    try:
        if name.startswith(("s_load_", "s_buffer_load_")):
            return scalar_load(i)
        if name.startswith(("buffer_load_", "buffer_store_")):
            return buffer_access(i)
        if name.startswith(("ds_load_", "ds_store_")):
            return local_access(i)
        if name == "ds_bpermute_b32":
            return permute(i)
        if name == "ds_add_u32":
            return local_add(i)
        if name.startswith("s_"):
            return scalar(i)
        if name.startswith("v_"):
            return vector(i)
        raise Unsupported(i.text)
    except Unsupported as error:  # it matters only if it is executed
        message = str(error)

        def refuse(w: Wave) -> None:
            raise Unsupported(message)

        return refuse


@dataclass(frozen=True)
class Layout:
    """Which registers hold what when a wave starts."""

    grid: int | None
    ids: dict[int, int]  # the register of each dimension of the workgroup's id
    wave: int | None  # bits 6..11: the number of the wave in its workgroup
    packed_lanes: bool  # the three numbers of a lane are in one register


def _layout_of(ir: str, nir: str, generation: int) -> Layout:
    """The layout, from the compiler's own texts.

    RADV's order: two registers for rings, the descriptor set, the grid if it is read, the workgroup's
    id in each dimension that is read, and then others.
    """
    start = next(line for line in ir.splitlines() if "p_startpgm" in line)
    count = max((int(b or a) for a, b in re.findall(r":s\[(\d+)(?:-(\d+))?\]", start)), default=2) + 1
    reads_grid = "@load_num_workgroups" in nir
    first = 6 if reads_grid else 3
    ids = {dim: first + number for number, dim in enumerate(_used_dims(nir, "@load_workgroup_id"))}
    last = first + len(ids)
    reads_wave = re.search(r"@load_(subgroup_id|num_subgroups)|ordered_id", nir) and last < count
    return Layout(3 if reads_grid else None, ids, last if reads_wave else None, generation >= 11)


def _used_dims(nir: str, intrinsic: str) -> list[int]:
    dims = set()
    for match in re.finditer(rf"(%\d+) = {intrinsic}", nir):
        for use in re.finditer(rf"{match[1]}(\.[xyzw]+)?(?![\d.])", nir[match.end() :]):
            dims |= {"xyz".index(c) for c in use[1][1:]} if use[1] else {0, 1, 2}
    return sorted(dims)


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be run."""

    program: list[Instruction]
    layout: Layout
    lanes: int  # of a wave
    workgroup: tuple[int, int, int]
    local_nbytes: int  # of workgroup memory

    @classmethod
    def read(
        cls,
        assembly: str,
        ir: str,
        nir: str,
        generation: int,
        *,
        lanes: int,
        workgroup: tuple[int, int, int],
        local_nbytes: int,
    ) -> Kernel:
        """From the compiler's texts: the assembly, and its representations before and after instructions
        are chosen.
        """
        layout = _layout_of(ir, nir, generation)
        return cls(_prepare(assembly, generation), layout, lanes, workgroup, local_nbytes)

    @property
    def invocations(self) -> int:
        x, y, z = self.workgroup
        return x * y * z

    @property
    def waves(self) -> int:
        return -(-self.invocations // self.lanes)


@dataclass(frozen=True)
class Dispatch:
    """A kernel with its grid and its buffers, by the number of their binding."""

    kernel: Kernel
    grid: tuple[int, int, int]
    buffers: dict[int, np.ndarray[Any, Any]]


class Observer:
    """Sees what a wave does. This one ignores it."""

    def see(self, i: Instruction, w: Wave, taken: bool) -> None:
        """An instruction was executed. taken: of a branch."""

    def meet(self, others: list[Any]) -> None:
        """The wave is at a barrier, where these observers' waves are, too."""


def run_workgroup(
    dispatch: Dispatch,
    group: tuple[int, int, int],
    observers: Sequence[Any] | None = None,
    limit: int = 3_000_000,
) -> None:
    """Run all waves of a workgroup.

    observers: one for each wave. limit: the most instructions of a wave.
    """
    kernel = dispatch.kernel
    seen_by = observers or [Observer()] * kernel.waves
    local = np.zeros(max(kernel.local_nbytes, 4), np.uint8)
    running = [
        (_run(_wave(dispatch, group, number, local), kernel.program, observer, limit), observer)
        for number, observer in enumerate(seen_by)
    ]
    with np.errstate(all="ignore"):  # lanes that are off, and zeros in buffers
        while running:  # each runs to its next barrier
            running = [(wave, observer) for wave, observer in running if next(wave, None) is not None]
            for _, observer in running:
                observer.meet([other for _, other in running])


def _wave(dispatch: Dispatch, group: tuple[int, int, int], number: int, local: np.ndarray[Any, Any]) -> Wave:
    kernel = dispatch.kernel
    w, layout = Wave(kernel.lanes, local, dispatch.buffers), kernel.layout
    w.s[2] = DESCRIPTORS & M32
    if layout.grid is not None:
        w.s[layout.grid : layout.grid + 3] = list(dispatch.grid)
    for dim, register in layout.ids.items():
        w.s[register] = group[dim]
    if layout.wave is not None:
        w.s[layout.wave] = number << 6
    flat = number * kernel.lanes + np.arange(kernel.lanes)
    sx, sy, _ = kernel.workgroup
    x, y, z = flat % sx, flat // sx % sy, flat // (sx * sy)
    if layout.packed_lanes:
        w.v[0][:] = (x | y << 10 | z << 20).astype(np.uint32)
    else:
        for register, values in enumerate((x, y, z)):
            w.v[register][:] = values.astype(np.uint32)
    w.set_exec(sum(1 << int(lane) for lane in np.flatnonzero(flat < kernel.invocations)))
    return w


_TAKEN: dict[str, Callable[[Wave], bool]] = {
    "s_branch": lambda w: True,
    "s_cbranch_scc0": lambda w: not w.s[SCC],
    "s_cbranch_scc1": lambda w: bool(w.s[SCC]),
    "s_cbranch_execz": lambda w: not w.exec,
    "s_cbranch_execnz": lambda w: bool(w.exec),
    "s_cbranch_vccz": lambda w: not w.vcc,
    "s_cbranch_vccnz": lambda w: bool(w.vcc),
}


def _run(w: Wave, program: list[Instruction], observer: Any, limit: int) -> Iterator[bool]:
    """Yields at every barrier."""
    place, end, steps = 0, len(program), 0
    see = observer.see
    while place < end:
        i = program[place]
        steps += 1
        if steps > limit:
            raise Unsupported(f"more than {limit} instructions")
        place += 1
        w.touched = None
        if i.target >= 0:
            if i.name not in _TAKEN:
                raise Unsupported(i.text)
            taken = _TAKEN[i.name](w)
            if taken:
                place = i.target
            see(i, w, taken)
            continue
        _execute(i, w)
        see(i, w, False)
        if i.name == "s_barrier":
            yield True
        elif i.name == "s_endpgm":
            return


def _execute(i: Instruction, w: Wave) -> None:
    assert i.run is not None
    if i.second is None:
        i.run(w)
        return
    # Both halves read their operands before one of them writes.
    both = list(i.early)
    before = w.v[both]
    i.run(w)
    after = w.v[both]
    w.v[both] = before
    assert i.second.run is not None
    i.second.run(w)
    w.v[both] = after
