"""Texts with a second form for devices that have 64-bit integers."""

from __future__ import annotations

from pteron.gpu.wgpu.wide import widened
from tests.support.operators import samples  # noqa: F401  gives every operator its samples
from tests.support.operators.sample import built_texts

TEXT = """\
fn before() {}
//#narrow
alias word_t = u32;
//#wide
//alias word_t = u64;
//fn low(word: word_t) -> u32 { return u32(word); }
//#both
fn after() {}  // kept
"""


def test_the_wide_form_replaces_the_narrow_form() -> None:
    assert widened(TEXT) == (
        "fn before() {}\n"
        "alias word_t = u64;\n"
        "fn low(word: word_t) -> u32 { return u32(word); }\n"
        "fn after() {}  // kept\n"
    )


def test_a_text_with_one_form_stays() -> None:
    assert widened("fn main() {}\n//#trusted\n") == "fn main() {}\n//#trusted\n"


def test_some_kernels_have_both_forms() -> None:
    both = {built.kernel for built in built_texts() if widened(built.text) != built.text}
    assert "linear_affine_blocks" in both
