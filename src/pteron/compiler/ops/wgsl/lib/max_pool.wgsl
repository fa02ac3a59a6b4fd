struct Largest { value: x_t, index: u32 }

fn largest(o: Output) -> Largest {
    let v = window(o.at);
    var best = Largest(bitcast<x_t>(p.lowest), place(v.first.x, v.first.y, v.first.z));
    for (var d = v.first.x; d < v.last.x; d += v.step.x) {
        for (var h = v.first.y; h < v.last.y; h += v.step.y) {
            for (var w = v.first.z; w < v.last.z; w += v.step.z) {
                let index = place(d, h, w);
                let element = x_at(o.plane + index);
                if (element > best.value || is_nan(f32(element))) { best = Largest(element, index); }
            }
        }
    }
    return best;
}
