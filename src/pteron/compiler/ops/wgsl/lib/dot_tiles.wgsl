// x @ W^T for many rows, in square tiles: 64 lanes compute SIDE rows of SIDE columns. See tile_core.
const HEIGHT = SIDE;
const WIDTH = SIDE;
const TALL = SIDE / 8u;
const SLICES = 1u;

//#include tile_core
