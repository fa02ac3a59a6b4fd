// y = x @ W^T + bias with 4-bit W, by lanes that share x. A word brings eight weights of a column.
//#trusted
@group(0) @binding(0) var<storage, read> x: array<f32>;            // [rows, depth]
@group(0) @binding(1) var<storage, read> weights: array<u32>;      // [columns, packed / 4]
@group(0) @binding(2) var<storage, read> scales: array<f32>;       // [depth / group, scale_row]
@group(0) @binding(3) var<storage, read> bias: array<f32>;         // [columns]
@group(0) @binding(4) var<storage, read_write> y: array<f32>;      // [rows, columns]
@group(0) @binding(5) var<uniform> p: Params;
//#if SECOND
@group(0) @binding(6) var<storage, read_write> y2: array<f32>;
//#end
//#if THIRD
@group(0) @binding(7) var<storage, read_write> y3: array<f32>;
//#end

struct Params {
    rows: u32, columns: u32, second: u32, third: u32,
    depth: u32, packed: u32, group: u32, scale_row: u32,
}

//#include q4_columns
//#include shared_x

fn eights() -> u32 { return p.packed / 4u; }
fn per_group() -> u32 { return p.group / 8u; }

fn eight(at: vec4<u32>) -> Eight {
    return unpack(vec4<u32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]));
}

fn scale(g: u32, c: vec4<u32>) -> vec4<f32> {
    let at = vec4<u32>(g * p.scale_row) + c;
    return vec4<f32>(scales[at.x], scales[at.y], scales[at.z], scales[at.w]);
}
