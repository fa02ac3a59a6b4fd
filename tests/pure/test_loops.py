"""Every kernel's loops end, which can be read from its text. So drivers need not count their iterations."""

from __future__ import annotations

from collections import defaultdict

import pytest

from pteron.compiler.ops.loops import unproved
from pteron.engine.devices.device import TRUSTED, Checks
from tests.support.operators.graphs import built_texts

# Kernels with loops that search, or whose steps are parameters. Drivers count these.
SEARCHES = {"repeat_interleave", "search", "pdist", "scatter"}
STEPS = {"binary", "unary", "chain", "max_pool", "max_pool_indices", "moments"}
# Marked as trusted, and only for software adapters.
SOFTWARE = {"attention_decode", "attention_tile", "linear_affine_blocks"}


def test_the_loops_of_every_kernel_end() -> None:
    found = defaultdict(set)
    for built in built_texts():
        for loop in unproved(built.text):
            found[built.kernel.name].add(loop)
    assert not {name: loops for name, loops in found.items() if name not in SEARCHES | STEPS | SOFTWARE}


TEXT = """
struct Params {{ count: u32, start: u32 }}
@group(0) @binding(0) var<storage, read> lengths: array<u32>;
@group(0) @binding(1) var<uniform> p: Params;
const LANES = 64u;
const NONE = LANES / 128u;
fn end_of(i: u32) -> u32 {{ return lengths[i]; }}
fn main(given: u32) {{
    let long = lengths[0];
    let clamped = min(lengths[0], p.count);
    let blocks = (p.count + LANES - 1u) / LANES;
    let half = p.count / 2u;
    var changing = p.count;
    {loop}
}}
"""

ENDING = [
    "for (var i = 0u; i < 4u; i++) { }",
    "for (var i = 0u; i < end_of(i); i++) { }",
    "for (var i = 0u; i < long; i++) { if (i == 3u) { continue; } }",
    "for (var i = given; i < p.count; i += LANES) { let j = i + 1u; }",
    "for (var i = given; i < half; i += 4u * LANES) { }",
    "for (var i = given; i < clamped; i += LANES) { }",
    "for (var i = given; i < min(p.count, long); i += 2u) { }",
    "for (var i = given; i + 4u <= p.count; i += 4u) { }",
    "for (var i = 0u; 4u * i < half; i++) { }",
    "for (var i = lengths[0]; i > 0u; i--) { }",
    "for (var i = LANES / 2u; i > 0u; i /= 2u) { }",
    "for (var i = 63u; i < 64u; i--) { }",
    "for (var i = 0u; found && i < p.count; i += 8u) { }",
]
ENDLESS = [
    "loop { }",
    "while (changing > 3u) { changing--; }",
    "for (;;) { break; }",
    "for (var i = given; i < long; i += LANES) { }",
    "for (var i = given; i < given; i += LANES) { }",
    "for (var i = given; i < changing; i += LANES) { changing = 4294967295u; }",
    "for (var i = given; i < p.count - p.start; i += LANES) { }",
    "for (var i = given; i < end_of(0u); i += 2u) { }",
    "for (var i = given; i < p.count; i += p.start) { }",
    "for (var i = given; i < p.count; i += NONE) { }",
    "for (var i = given; i < p.count; i += long) { }",
    "for (var i = 0u; i <= long; i++) { }",
    "for (var i = 0u; 4u * i < long; i++) { }",
    "for (var i = 0u; i < p.count; i++) { if (i == 3u) { i = 0u; } }",
    "for (var i = 0u; i < p.count; i++) { i -= 1u; }",
    "for (var i = 0u; i < p.count; i++) { change(&i); }",
    "for (var i = 0u; i < p.count || found; i++) { }",
    "for (var i = 0u; !(found && i < p.count); i++) { }",
    "for (var i = 0u; i < p.count; i *= 2u) { }",
    "for (var i = LANES; i > 0u; i -= 3u) { }",
]


@pytest.mark.parametrize("loop", ENDING)
def test_a_loop_that_counts_to_a_size_ends(loop: str) -> None:
    assert not unproved(TEXT.format(loop=loop))
    assert Checks.needed(TEXT.format(loop=loop), is_software=False) == Checks.BOUNDS


@pytest.mark.parametrize("loop", ENDLESS)
def test_a_loop_that_may_be_endless_is_not_proved(loop: str) -> None:
    assert len(unproved(TEXT.format(loop=loop))) == 1
    assert Checks.needed(TEXT.format(loop=loop), is_software=False) == Checks.ALL


def test_only_software_adapters_run_trusted_kernels_without_checks() -> None:
    text = TEXT.format(loop=ENDING[0])
    assert Checks.needed(f"{TRUSTED}\n{text}", is_software=False) == Checks.BOUNDS
    assert Checks.needed(f"{TRUSTED}\n{text}", is_software=True) == Checks.NONE
    assert Checks.needed(text, is_software=True) == Checks.ALL


def test_one_loop_in_another() -> None:
    inner = "for (var j = 0u; j < long; j += 2u) { }"
    text = TEXT.format(loop=f"for (var i = 0u; i < 4u; i++) {{ {inner} }}")
    assert unproved(text) == [inner.split(" {")[0]]
