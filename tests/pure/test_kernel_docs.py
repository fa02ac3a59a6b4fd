"""docs/kernels.md is up to date, and its estimates agree with numbers that were computed by hand."""

from __future__ import annotations

import pytest

from tests.support.kernels.docs import PATH, page
from tests.support.kernels.gpu_classes import APPLE, INTEL, NVIDIA, GpuClass
from tests.support.kernels.registers import ALLOWANCE, registers

TEXT = """
const ROWS = 4u;
alias sum_t = vec4<f32>;
struct Pair { low: vec2<f32>, high: f32 }
struct Params { count: u32, strides: array<vec4<u32>, 2>, }
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> p: Params;
var<workgroup> shared_sums: array<vec4<f32>, 64>;

fn helper(i: u32) -> Pair {          // 1
    let four = x[i] * 2.0;           // 4
    return Pair(four.xy, four.z);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {  // 3
    var sums: array<sum_t, ROWS>;    // 16
    let unused = mat4x4<f32>();
    for (var k = 0u; k < p.count; k++) {  // 1
        let pair = helper(k);        // 3, and 5 in the function, which is called before
        let lane = dot(x[k], x[k + 1u]);  // 1
        sums[k] += vec4<f32>(pair.high * lane);
    }
    let a = sums[0] + sums[1];       // 4
    y[id.x] = a * a;
}
"""


def test_the_page_is_current() -> None:
    assert PATH.read_text("utf-8") == page(), "run `make docs`"


def test_registers_are_the_most_words_in_scope() -> None:
    assert registers(TEXT) == ALLOWANCE + 3 + 16 + 1 + 3 + 5
    assert registers(TEXT.replace("array<sum_t, ROWS>", "array<sum_t, 8>")) == registers(TEXT) + 16
    assert registers(TEXT.replace("y[id.x] = a * a;", "y[id.x] = a * unused;")) == registers(TEXT) + 16


@pytest.mark.parametrize(
    ("gpu", "lanes", "needed", "nbytes", "groups"),
    [
        (NVIDIA, 64, 32, 0, 24),  # as many blocks as a multiprocessor has, which are all its 48 warps
        (NVIDIA, 128, 64, 0, 8),  # 65536 registers / (128 * 64)
        (NVIDIA, 128, 65, 0, 7),  # 72 registers are granted
        (NVIDIA, 256, 32, 32 << 10, 3),  # 100 KiB / 33 KiB
        (NVIDIA, 32, 256, 0, 0),
        (APPLE, 64, 52, 0, 16),
        (APPLE, 64, 53, 0, 14),
        (APPLE, 64, 20, 16 << 10, 3),
        (INTEL, 64, 64, 0, 28),  # 112 threads of 16
        (INTEL, 64, 65, 0, 14),  # 112 threads of 8
        (INTEL, 64, 20, 9 << 10, 8),  # 16 KiB are granted
        (INTEL, 64, 129, 0, 0),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_resident_workgroups(gpu: GpuClass, lanes: int, needed: int, nbytes: int, groups: int) -> None:
    assert gpu.resident_groups(lanes, needed, nbytes) == groups


def test_lanes_that_fill_up_a_thread_do_not_count() -> None:
    assert NVIDIA.occupancy(8, 16, 0) == 24 * 8 / 1536
    assert NVIDIA.occupancy(64, 16, 0) == 1


def test_the_ceiling_is_the_slower_of_memory_and_arithmetic() -> None:
    assert NVIDIA.least_seconds(0, 504 * 10**9) == (1.0, "memory")
    seconds, kind = NVIDIA.least_seconds(round(2 * NVIDIA.flops_per_second), 504 * 10**9)
    assert kind == "arithmetic" and seconds == pytest.approx(2)
