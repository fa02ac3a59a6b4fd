struct Params {
    rows: u32, columns: u32, second: u32, third: u32,
    depth: u32, packed: u32, group: u32, scale_row: u32,
}
