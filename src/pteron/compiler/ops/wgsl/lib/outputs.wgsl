// The output of an element of a product. Up to three outputs have consecutive columns: y2 begins at column
// p.second and y3 at column p.third. A missing output begins at p.columns.
struct Place { output: u32, index: u32 }

fn place(row: u32, column: u32) -> Place {
    if (column >= p.third) { return Place(3u, row * (p.columns - p.third) + column - p.third); }
    if (column >= p.second) { return Place(2u, row * (p.third - p.second) + column - p.second); }
    return Place(1u, row * p.second + column);
}
