//#if SEGMENTED
@group(0) @binding(0) var<storage, read> tiles: array<i32>;  // pairs: the first query and the number of queries
//#end

// The first query and the number of queries of a tile. Without segments, batch b is one tile.
fn tile_at(b: u32) -> vec2<u32> {
    var tile = vec2<u32>(0u, p.length);
//#if SEGMENTED
    tile = vec2<u32>(u32(tiles[2u * b]), u32(tiles[2u * b + 1u]));
//#end
    return tile;
}
