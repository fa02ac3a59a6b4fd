// How the elements 4i .. 4i+3 of an operand, which is broadcast to the output, are read.
const ELEMENTS = 0u;  // one by one
const SAME = 1u;  // as a quad: the operand has the shape of the output
const ONE = 2u;  // as one element: the operand has no other
const ALIKE = 3u;  // as one element, which all four are
const RUN = 4u;  // as a quad: rows of the operand are rows of the output

// The size of dimension d of the output.
fn size_of(d: u32) -> u32 { return p.sizes[d >> 2u][d & 3u]; }
