// h_out = h + norm(y, y_norm), and its readers' rows: norm(h_out, norm[0]) for the dense MLP, norm[1] times factor for the
// router, norm[2] for the experts, quantised; the router's row also as floats. grid (3, rows), a workgroup for each
// reader, or (1, rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#define ROW gl_WorkGroupID.y
#include "row.glsl"
#include "quantize_row.glsl"

// ek_cuda_inputs_args
layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t h, h_out, y, y_norm;
    uint64_t norm[3];
    acts to[3];
    uint64_t router;
    int64_t ld;
    float eps, factor;
    int n;
} a;

uint64_t row_of(uint64_t base)
{
    return base + uint64_t(int64_t(ROW) * a.ld * 4l);
}

// False: with care alone, and nothing is written.
bool run(bool care)
{
    const int n = a.n, first = gl_NumWorkGroups.x == 1u ? 0 : int(gl_WorkGroupID.x);
    const int end = gl_NumWorkGroups.x == 1u ? 3 : first + 1;
    row_parts v = load_row(row_of(a.y), n, care), h = load_row(row_of(a.h), n, care), w = load_row(a.y_norm, n, care);
    row_parts own = load_row(a.norm[first], n, care);
    bool usual = true;
    float by = 0.0;
    begin_row();
    barrier();
    [[dont_unroll]] for (int norm = 0; norm < 2; norm++) {
        by = factor_of(v, n, a.eps, care, usual);
        if (norm == 0) h = sum_of_rows(h, normed(v, by, w, n), n), v = h;
    }
    if (!usual) return false;
    if (first == 0) store_row(row_of(a.h_out), n, h, care);
    for (int which = first; which < end; which++) {
        if (which > first) own = load_row(a.norm[which], n, care);
        v = normed(h, by, own, n);
        if (which == 1) {
            v = scaled(v, a.factor, n);
            if (a.router != 0ul) store_row(row_of(a.router), n, v, care);
        }
        if (a.to[which].q != 0ul) quantize_row(a.to[which], v, n);
        // The last subgroup writes groups with only some of its threads. Without a barrier, on one card the other
        // threads went on to the next reader's groups.
        barrier();
    }
    return true;
}

void main()
{
#if !EK_SOFT
    if (are_fours(a.h | a.h_out | a.y | a.y_norm | a.norm[0] | a.norm[1] | a.norm[2] | a.router, a.ld, a.n)) {
        if (run(false)) return;
        barrier();
    }
#endif
    run(true);
}
