// The scales of a group of four columns.
struct Lines { scale: vec4<f32>, start: vec4<f32> }

fn lines_of(columns: vec4<u32>, group: u32) -> Lines {
    let a = line_of(columns.x, group);
    let b = line_of(columns.y, group);
    let c = line_of(columns.z, group);
    let d = line_of(columns.w, group);
    return Lines(vec4<f32>(a.scale, b.scale, c.scale, d.scale), vec4<f32>(a.start, b.start, c.start, d.start));
}
