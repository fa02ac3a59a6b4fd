// How a row of attention is cut: into at most p.chunks chunks of keys, each of which leaves a part: the sum of
// its weighted values, QUADS of them, and a quad with its highest score and the sum of its weights. Keys
// are taken STEP at a time.
const QUADS = WIDTH / 4u;

// How many keys the chunks have, but for the last. They follow the keys that there are, so that all of the
// workgroups share in a long context, and the number of parts stays small.
fn chunk_length(s: u32) -> u32 {
    let steps = (visible_keys(s) + STEP - 1u) / STEP;
    return (steps + p.chunks - 1u) / p.chunks * STEP;
}
fn row_of(b: u32, h: u32, s: u32) -> u32 { return (b * p.heads + h) * p.length + s; }
fn part_of(row: u32, chunk: u32) -> u32 { return (row * p.chunks + chunk) * (QUADS + 1u); }
