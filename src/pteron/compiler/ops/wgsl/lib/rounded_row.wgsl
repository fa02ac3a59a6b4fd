// Rows of 8-bit codes, four in a word. After the codes of a row, each block of BLOCK elements has two floats: its
// factor, and its factor times the sum of its codes.
fn first_word(row: u32) -> u32 { return row * (p.depth / 4u + p.depth / BLOCK * 2u); }
