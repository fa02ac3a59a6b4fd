"""Reads the assembly that Mesa's RADV gives for a kernel, of GFX10.3 and GFX11.

Instructions get the names of GFX11. Each knows its operands, its modifiers, and the registers that it reads
and writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


VCC, M0, EXEC, NULL = 106, 124, 126, 125


SCC = 253


class Unsupported(Exception):
    """An instruction or an operand that the emulator does not know."""


_RENAMED = [  # GFX9 and GFX10 names, in the words of GFX11
    (r"^v_dual_(.*)$", lambda m: f"v_{m[1]}"),
    (
        r"^(buffer|global|s_buffer|s|scratch)_(load|store)_dwordx(\d+)$",
        lambda m: f"{m[1]}_{m[2]}_b{32 * int(m[3])}",
    ),
    (r"^(buffer|global|s_buffer|s|scratch)_(load|store)_dword$", lambda m: f"{m[1]}_{m[2]}_b32"),
    (r"^(buffer|global)_load_ubyte$", lambda m: f"{m[1]}_load_u8"),
    (r"^(buffer|global)_load_sbyte$", lambda m: f"{m[1]}_load_i8"),
    (r"^(buffer|global)_load_ushort$", lambda m: f"{m[1]}_load_u16"),
    (r"^(buffer|global)_load_sshort$", lambda m: f"{m[1]}_load_i16"),
    (r"^(buffer|global)_store_byte$", lambda m: f"{m[1]}_store_b8"),
    (r"^(buffer|global)_store_short$", lambda m: f"{m[1]}_store_b16"),
    (
        r"^ds_(read|write)2(st64)?_(b\d+)$",
        lambda m: f"ds_{_ds(m[1])}_2addr_{'stride64_' if m[2] else ''}{m[3]}",
    ),
    (r"^ds_(read|write)_(\w+)$", lambda m: f"ds_{_ds(m[1])}_{m[2]}"),
    (r"^(s|v)_(and|or)n2_(.*)$", lambda m: f"{m[1]}_{m[2]}_not1_{m[3]}"),
    (r"^v_(add|sub|subrev)_nc_u32$", lambda m: f"v_{m[1]}_u32"),
    (
        r"^v_(addc|subb|subbrev)_co_u32$",
        lambda m: f"v_{m[1][:-1] if m[1] != 'subbrev' else 'subrev'}_co_ci_u32",
    ),
    (r"^v_mac_f32$", lambda m: "v_fmac_f32"),
    (r"^v_mac_f16$", lambda m: "v_fmac_f16"),
    (r"^v_mad_f32$", lambda m: "v_fma_f32"),
    (r"^v_mad_f16$", lambda m: "v_fma_f16"),
    (r"^v_madmk_f32$", lambda m: "v_fmamk_f32"),
    (r"^v_madak_f32$", lambda m: "v_fmaak_f32"),
    (r"^v_mad_mix(.*)$", lambda m: f"v_fma_mix{m[1]}"),
    (r"^v_cvt_pk_rtz_f16_f32$", lambda m: "v_cvt_pkrtz_f16_f32"),
    (r"^s_inst_prefetch$", lambda m: "s_set_inst_prefetch_distance"),
    (r"^v_mul_dx9_zero_f32$", lambda m: "v_mul_legacy_f32"),
    (r"^buffer_(load|store)_short_d16(_hi)?$", lambda m: f"buffer_{m[1]}_d16{m[2] or ''}_b16"),
    (r"^buffer_load_ubyte_d16(_hi)?$", lambda m: f"buffer_load_d16{m[1] or ''}_u8"),
    (r"^buffer_load_sbyte_d16(_hi)?$", lambda m: f"buffer_load_d16{m[1] or ''}_i8"),
    (r"^buffer_store_byte_d16_hi$", lambda m: "buffer_store_d16_hi_b8"),
    (r"^ds_load_u16_d16(_hi)?$", lambda m: f"ds_load_d16{m[1] or ''}_b16"),
    (r"^ds_load_(u8|i8)_d16(_hi)?$", lambda m: f"ds_load_d16{m[2] or ''}_{m[1]}"),
    (r"^ds_store_(b8|b16)_d16_hi$", lambda m: f"ds_store_d16_hi_{m[1]}"),
    (r"^v_(add|sub)_nc_u16$", lambda m: f"v_{m[1]}_u16"),
]


def _ds(word: str) -> str:
    return "load" if word == "read" else "store"


def _name(written: str) -> str:
    name = re.sub(r"_(e32|e64|e64_dpp|dpp|dpp8|sdwa)$", "", written)
    for pattern, new in _RENAMED:
        match = re.match(pattern, name)
        if match:
            name = new(match)
    return name


@dataclass(frozen=True)
class Operand:
    """`kind`: v, s, literal or off. Vector operands of floats may have signs."""

    kind: str
    index: int = 0
    count: int = 1
    bits: int = 0  # of a literal
    negative: bool = False
    absolute: bool = False
    decimal: bool = False  # a literal that is written as a float: a half in an instruction on halves
    extended: bool = False  # the selected part of a register is a signed number

    @property
    def registers(self) -> range:
        base = {"v": 256, "s": 0}.get(self.kind)
        return range(0) if base is None else range(base + self.index, base + self.index + self.count)


_SPECIAL = {
    "vcc": ("s", VCC, 2),
    "vcc_lo": ("s", VCC, 1),
    "vcc_hi": ("s", VCC + 1, 1),
    "exec": ("s", EXEC, 2),
    "exec_lo": ("s", EXEC, 1),
    "exec_hi": ("s", EXEC + 1, 1),
    "m0": ("s", M0, 1),
    "null": ("s", NULL, 1),
    "src_scc": ("s", SCC, 1),
    "scc": ("s", SCC, 1),
    "src_vccz": ("s", 251, 1),
    "src_execz": ("s", 252, 1),
}


def operand(text: str) -> Operand:
    text = text.strip()
    negative = absolute = False
    if match := re.fullmatch(r"sext\((.*)\)", text):
        return replace(operand(match[1]), extended=True)
    if match := re.fullmatch(r"neg\((.*)\)", text):
        negative, text = True, match[1]
    if re.match(r"-(?=[vs|\[])", text):
        negative, text = True, text[1:]
    if match := re.fullmatch(r"\|(.*)\|", text) or re.fullmatch(r"abs\((.*)\)", text):
        absolute, text = True, match[1]
    if text == "off":
        return Operand("off")
    if text in _SPECIAL:
        kind, index, count = _SPECIAL[text]
        return Operand(kind, index, count, 0, negative, absolute)
    if match := re.fullmatch(r"([vs])(\d+)(?:\.([lh]))?", text):
        if match[3]:
            raise Unsupported(f"half of a register: {text}")
        return Operand(match[1], int(match[2]), 1, 0, negative, absolute)
    if match := re.fullmatch(r"([vs])\[(\d+):(\d+)\]", text):
        return Operand(match[1], int(match[2]), int(match[3]) - int(match[2]) + 1, 0, negative, absolute)
    if match := re.fullmatch(r"(?:lit\()?(0x[0-9a-f]+)\)?", text):
        return Operand("literal", bits=int(match[1], 16), negative=negative, absolute=absolute)
    if re.fullmatch(r"-?\d+", text):
        return Operand("literal", bits=int(text) & M64, negative=negative, absolute=absolute)
    if re.fullmatch(r"-?\d+\.\d+(e[-+]?\d+)?", text):
        return Operand(
            "literal",
            bits=int(np.float32(text).view(np.uint32)),
            negative=negative,
            absolute=absolute,
            decimal=True,
        )
    raise Unsupported(f"operand {text!r}")


@dataclass
class Instruction:
    """One instruction, and from `machine.prepare` on a function that runs it on a wave."""

    name: str
    operands: list[Operand]
    modifiers: dict[str, Any]
    text: str
    run: Callable[[Any], Any] | None = None
    target: int = -1  # of a branch
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    info: Any = None  # what the observer knows about it
    second: Instruction | None = None  # the other half of a dual instruction
    early: tuple[int, ...] = ()  # vector registers that this half writes and the other half reads


_MODIFIER = re.compile(
    r"^(offen|idxen|glc|slc|dlc|lds|tfe|clamp|gds|r128|unorm|off|row_mirror|row_half_mirror)$|^\w+:(\[[^\]]*\]|\S+)$"
)


def _split(text: str) -> tuple[str, list[str], dict[str, Any]]:
    """The name, the operands and the modifiers of an instruction."""
    name, _, rest = text.strip().partition(" ")
    parts, depth, current = [], 0, ""
    for char in rest:
        depth += (char in "[(" and 1) or ((char in "])" and -1) or 0)
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current)
    modifiers: dict[str, Any] = {}
    if parts:
        words = re.findall(r"\w+:\[[^\]]*\]|\S+", parts[-1])
        kept = [words[0]] if words else []
        for word in words[1:]:
            if not _MODIFIER.match(word):
                kept.append(word)
                continue
            key, _, value = word.partition(":")
            if value.startswith("["):
                modifiers[key] = [
                    int(v, 0) if re.fullmatch(r"-?\w+", v) and v[0].isdigit() else v
                    for v in value[1:-1].split(",")
                ]
            elif value:
                modifiers[key] = (
                    int(value, 0)
                    if re.fullmatch(r"-?(0x)?[0-9a-f]+", value) and value[0] in "-0123456789"
                    else value
                )
            else:
                modifiers[key] = True
        parts[-1] = " ".join(kept)
        if parts[-1] in ("", None):
            parts.pop()
    return name, [p.strip() for p in parts], modifiers


def _decoded(words: list[str]) -> str:
    """Instructions of GFX11 on halves of registers, which the disassembler does not know: v_mov_b16."""
    word = int(words[0], 16)
    source, target, operation = word & 0x1FF, word >> 17 & 0xFF, word >> 9 & 0xFF
    halves = [int(bool(source & 0x80)), int(bool(target & 0x80))]
    if word >> 25 == 0x3F and operation == 0x1C and source >= 256:
        return f"v_mov_b16 v{target & 0x7F}, v{source & 0x7F} op_sel:[{halves[0]},{halves[1]}]"
    if word >> 25 == 0x3F and operation == 0x1C and 128 <= source <= 192:
        return f"v_mov_b16 v{target & 0x7F}, {source - 128} op_sel:[0,{int(bool(target & 0x80))}]"
    if word >> 25 == 0x3F and operation == 0x66:
        return f"v_swap_b16 v{target & 0x7F}, v{source & 0x7F} op_sel:[{halves[0]},{halves[1]}]"
    return f"v_unknown_{words[0]}"


def parse(text: str, generation: int) -> list[Instruction]:
    """The instructions of a program. Branches know their targets."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    branches: list[tuple[Instruction, str]] = []
    for line in text.splitlines():
        if "(invalid instruction)" in line:
            line = _decoded(line.rpartition(";")[2].split())
        line = line.split(";")[0].strip()
        if not line:
            continue
        if re.fullmatch(r"\w+:", line):
            labels[line[:-1]] = len(found)
            continue
        if match := re.fullmatch(r"\(then repeated (\d+) times\)", line):
            found += [found[-1]] * int(match[1])
            continue
        halves = [_instruction(half, line, branches, generation) for half in line.split(" :: ")]
        if len(halves) == 2:
            halves[0].second = halves[1]
            halves[0].early = tuple({r - 256 for r in halves[0].writes} & {r - 256 for r in halves[1].reads})
            halves[0].reads += halves[1].reads
            halves[0].writes += halves[1].writes
        found.append(halves[0])
    for instruction, label in branches:
        instruction.target = labels.get(label, len(found))
    return found


def _instruction(
    text: str, line: str, branches: list[tuple[Instruction, str]], generation: int
) -> Instruction:
    written, parts, modifiers = _split(text)
    name = _name(written)
    if written.endswith(("_dpp", "_dpp8", "_sdwa")):
        modifiers["encoding"] = written.rpartition("_")[2]
    if name.startswith(("s_cbranch", "s_branch")):
        made = Instruction(name, [], modifiers, line)
        branches.append((made, parts[0]))
        return made
    if name in IDLE or name.startswith(("s_waitcnt", "s_wait_")):
        return Instruction(name, [], {"text": " ".join(parts)}, line)
    made = Instruction(name, [operand(p) for p in parts], modifiers, line)
    if generation >= 11 and written.endswith("_e32"):
        _name_halves(made)
    outputs = outputs_of(made)
    made.writes = tuple(r for o in outputs for r in o.registers)
    inputs = [o for i, o in enumerate(made.operands) if i >= len(outputs)]
    preserves = name.endswith("_b16") or "_d16" in name or modifiers.get("dst_unused") == "UNUSED_PRESERVE"
    if re.match(r"v_(fmac|dot2c|dot4c|swap|pk_fmac)", name) or (
        preserves and not name.startswith(("ds_store", "buffer_store"))
    ):
        inputs += outputs
    made.reads = tuple(r for o in inputs for r in o.registers)
    return made


def _name_halves(i: Instruction) -> None:
    """GFX11: in a short instruction on 16 bits, the registers from v128 are the upper halves of those
    from v0.

    The disassembler does not know. In a long instruction, `op_sel` says it.
    """
    count, chosen = len(outputs_of(i)), []
    for number, o in enumerate(i.operands):
        upper = o.kind == "v" and o.index >= 128 and _is_16_bits(i.name, number < count)
        chosen.append(int(upper))
        if upper:
            i.operands[number] = replace(o, index=o.index - 128)
    if any(chosen):
        i.modifiers["op_sel"] = [*chosen[count:], *chosen[:count]]


def _is_16_bits(name: str, is_output: bool) -> bool:
    if match := re.match(r"v_cvt_[a-z]+(\d+)_[a-z]+(\d+)$", name):
        return match[1 if is_output else 2] == "16"
    return re.search(r"_[fuib]16$", name) is not None and not name.startswith("v_pk_")


IDLE = {
    "s_nop",
    "s_clause",
    "s_delay_alu",
    "s_set_inst_prefetch_distance",
    "s_sendmsg",
    "s_sleep",
    "s_endpgm",
    "s_barrier",
    "s_code_end",
    "s_denorm_mode",
    "s_round_mode",
    "s_setprio",
    "s_icache_inv",
    "s_dcache_inv",
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "s_ttracedata",
    "buffer_wbinvl1",
    "s_version",
}


def outputs_of(instruction: Instruction) -> list[Operand]:
    """The operands that an instruction writes. They come first."""
    name, operands = instruction.name, instruction.operands
    if name.startswith(
        ("s_cmp", "s_bitcmp", "ds_store", "buffer_store", "global_store", "s_setreg", "scratch_store")
    ):
        return []
    if name.startswith("v_cmpx"):
        return operands[:1] if len(operands) == 3 else []
    if "_co_" in name or name.startswith(("v_div_scale", "v_mad_u64_u32", "v_swap")):
        return operands[:2]
    return operands[:1]
