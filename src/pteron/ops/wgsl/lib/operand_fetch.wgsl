// The elements 4i .. 4i+3 of an operand, which is broadcast to the output. Needs broadcast_four.
fn NAME_fetch(i: u32) -> NAME_t4 {
    if (p.NAME_read == SAME) { return NAME_quad(i); }
    if (p.NAME_read == ONE) { return NAME_t4(NAME_at(0u)); }
    let first = operand_index(4u * i, p.NAME_strides);
    if (p.NAME_read == ALIKE) { return NAME_t4(NAME_at(first)); }
    if (p.NAME_read == RUN) { return NAME_quad(first / 4u); }
    let at = operand_indices(first, i, p.NAME_strides);
    return NAME_t4(NAME_at(at.x), NAME_at(at.y), NAME_at(at.z), NAME_at(at.w));
}
