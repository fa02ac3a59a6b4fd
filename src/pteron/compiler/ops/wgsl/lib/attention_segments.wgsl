//#if SEGMENTED
@group(0) @binding(0) var<storage, read> slots: array<i32>;      // [S], the index of each row's caches
@group(0) @binding(0) var<storage, read> positions: array<i32>;  // [S]
//#end
