// Where an element of a product goes. Up to three outputs stand side by side: the columns of y2 begin at
// p.second and those of y3 at p.third; of what there is not, at p.columns.
struct Place { output: u32, index: u32 }

fn place(row: u32, column: u32) -> Place {
    if (column >= p.third) { return Place(3u, row * (p.columns - p.third) + column - p.third); }
    if (column >= p.second) { return Place(2u, row * (p.third - p.second) + column - p.second); }
    return Place(1u, row * p.second + column);
}
