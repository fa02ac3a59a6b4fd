// Shared by the two transforms of Winograd's algorithm F(4x4, 3x3). Products are [factors, channels, tiles], with
// the 36 factors of a tile in the order of rows. Tiles are [batch, tiles down, tiles across].
const FACTORS = 6u;
const TILE = 4u;

struct Params {
    batch: u32,
    channels: u32,
    rows: u32,  // of the image
    columns: u32,
    down: u32,  // tiles
    across: u32,
//#if OUTPUTS
    splits: u32,
    stride: u32,  // elements of the products from one split to the next
    has_bias: u32,
    clamped: u32,
    low: f32,
    high: f32,
//#else
    row_padding: i32,
    column_padding: i32,
//#end
}

struct Tile { image: u32, channel: u32, row: u32, column: u32, at: u32, exists: bool }

// Neighbouring invocations have neighbouring tiles of one channel. `at` is the first of its 36 products.
fn tile_of(i: u32) -> Tile {
    let tiles = p.down * p.across;
    let all = p.batch * tiles;
    let exists = i < all * p.channels;
    let channel = i / all;
    let image = i % all / tiles;
    return Tile(image, channel, i % tiles / p.across * TILE, i % p.across * TILE, channel * all + i % all, exists);
}
