struct Params {
    rows: u32, columns: u32, second: u32, third: u32,
    depth: u32, row_bytes: u32, group: u32, scale_column: u32, scale_group: u32, zero: f32,
//#if EXPERTS
    sharing: u32,
//#end
//#if NORMED
    eps: f32,
//#end
}
