// The keys of a row are divided into at most p.chunks chunks. The result of a chunk is QUADS quads with the
// weighted sum of its values, and one quad with its highest score and the sum of its weights. Keys are read
// STEP at a time.
const QUADS = WIDTH / 4u;
//#if SEGMENTED
@group(0) @binding(0) var<storage, read> few: array<i32>;  // the rows that these kernels compute
//#end

// The query at a place in the grid.
fn query_at(place: u32) -> u32 {
    var s = place;
//#if SEGMENTED
    s = u32(few[place]);
//#end
    return s;
}

// The number of keys per chunk, except the last chunk. It grows with the number of visible keys, so all
// workgroups have work in a long context, and the number of chunks stays small.
fn chunk_length(s: u32) -> u32 {
    let steps = (visible_keys(s) - first_key(s) + STEP - 1u) / STEP;
    return (steps + p.chunks - 1u) / p.chunks * STEP;
}
fn row_of(b: u32, h: u32, place: u32) -> u32 { return (b * p.heads + h) * p.length + place; }
fn part_of(row: u32, chunk: u32) -> u32 { return (row * p.chunks + chunk) * (QUADS + 1u); }
