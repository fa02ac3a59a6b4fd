"""All shader texts, for all entries of the catalogue and all kinds of device."""

from __future__ import annotations

import pytest

from pteron.compiler.plan.routes import ByName
from pteron.tools.verify.catalogue import CATALOGUE
from tests.support.operators.graphs import LiveEntry, built_texts, product_of, texts_of
from tests.support.wgsl import Needs, needs

# The smallest limits that a WebGPU device may have.
INVOCATIONS, STORAGE_BUFFERS, WORKGROUP_NBYTES = 256, 8, 16 << 10


def test_every_text_stays_within_the_minimum_limits() -> None:
    problems = []
    for built in built_texts():
        asked = needs(built.text)
        within = (
            asked.invocations <= INVOCATIONS
            and asked.storage_buffers <= STORAGE_BUFFERS
            and asked.workgroup_nbytes <= WORKGROUP_NBYTES
            and not (built.portable and asked.extensions)
        )
        if not within:
            problems.append(f"{built.kernel.name} for {built.user}: {asked}")
    assert not problems, "\n".join([f"{len(problems)} texts", *problems[:10]])


def test_needs_of_a_shader_text() -> None:
    text = """
enable f16, subgroups;
const WG = 64u;
const LANES = DOWN * 4u;  // declared before what it needs
const DOWN = WG / 2u;
alias state_t = vec3<f32>;
struct Pair { a: f32, b: vec4<f16> }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
// @group(0) @binding(2) var<storage, read> z: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;
var<workgroup> some: array<state_t, LANES + 1u>;
var<workgroup> pairs: array<Pair, 2>;
@compute @workgroup_size(LANES, 2)
fn main() {}
"""
    assert needs(text) == Needs(256, 2, 129 * 16 + 2 * 32, frozenset({"f16", "subgroups"}))


@pytest.mark.parametrize("name", CATALOGUE)
def test_texts_do_not_depend_on_live_shapes(name: str) -> None:
    """At every live shape and for every route, all texts are already known at load."""
    for entry, dtype, features in product_of(CATALOGUE[name]):
        choice = ByName()
        node = LiveEntry(entry, dtype, features, choice)
        known = {route.name: texts_of(route.dispatches) for route in node.routes}
        assert len(known) == len(node.routes), "two routes have one name"
        for n in (*entry.sizes[1:], entry.sizes[0]):
            for choice.route in known:
                node.live.forget()
                node.resize(n)
                plan = node.live.plans[0]
                assert plan is not None
                new = set(texts_of(plan.dispatches)) - set(known[plan.route])
                assert not new, (
                    f"{dtype} on {features or 'the floor'}: route {plan.route} at {n} has new texts"
                )
