// The mean of each window.
@group(0) @binding(0) var<storage, read> x: array<x_word>;        // [planes, input..]
@group(0) @binding(1) var<storage, read_write> y: array<y_word>;  // [planes, output..]
@group(0) @binding(2) var<uniform> p: Params;
//#include pool

fn value(o: Output) -> y_t {
    let v = window(o.at);
    var sum = y_t(0);
    for (var d = v.first.x; d < v.last.x; d++) {
        for (var h = v.first.y; h < v.last.y; h++) {
            for (var w = v.first.z; w < v.last.z; w++) { sum += y_t(x_at(o.plane + place(d, h, w))); }
        }
    }
    let held = volume(max(v.last - v.first, vec3<i32>(0)));
    let count = max(select(held, v.size, COUNT_PADDING), 1);
    return sum / y_t(select(count, p.divisor, p.divisor != 0));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = flat_index(id, groups);
    if (i >= p.quads) { return; }
    let a = output_of(4u * i);
    let b = next(a);
    let c = next(b);
    y_put(i, y_t4(value(a), value(b), value(c), value(next(c))));
}
