// Winograd's transform of the inputs. One invocation has a tile of a channel: 6 x 6 inputs, of which neighbouring
// tiles have some in common.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // [batch, channels, rows, columns]
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // [factors, channels, tiles]
@group(0) @binding(2) var<uniform> p: Params;
//#include winograd

alias Line = array<f32, 6>;

fn transformed(d: Line) -> Line {
    let even = fma(-4.0, d[2], d[4]);
    let odd = fma(-4.0, d[1], d[3]);
    let even_half = d[4] - d[2];
    let odd_half = 2.0 * (d[3] - d[1]);
    return Line(
        fma(4.0, d[0], fma(-5.0, d[2], d[4])), even + odd, even - odd, even_half + odd_half, even_half - odd_half,
        fma(4.0, d[1], fma(-5.0, d[3], d[5])),
    );
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tile = tile_of(flat_index(id, groups));
    if (!tile.exists) { return; }
    let plane = (tile.image * p.channels + tile.channel) * p.rows * p.columns;
    let top = i32(tile.row) - p.row_padding;
    let left = i32(tile.column) - p.column_padding;
    var lines: array<Line, 6>;  // rows of the tile
//#each r 6
    let row = u32(top + i32(r));
    let start = plane + min(row, p.rows - 1u) * p.columns;
    var inputs: Line;
//#each c 6
    let column = u32(left + i32(c));  // a negative one is a large number
    let value = x[start + min(column, p.columns - 1u)];
    inputs[c] = select(0.0, value, row < p.rows && column < p.columns);
//#end c
    lines[r] = transformed(inputs);
//#end r
    let step = p.batch * p.down * p.across * p.channels;
//#each c 6
    let made = transformed(Line(lines[0][c], lines[1][c], lines[2][c], lines[3][c], lines[4][c], lines[5][c]));
//#each r 6
    y[tile.at + (r * FACTORS + c) * step] = made[r];
//#end r
//#end c
}
