// ek_cuda_stage_args
layout(set = 0, binding = 0, scalar) uniform Args {
    uint64_t h, y, y_norm;
    uint64_t pair_out, row_pair, weight, norm_1, norm_2;
    uint64_t scalar, x_norm;
    uint64_t x;
    acts to;
    int64_t ld;
    float eps, factor;
    int n, top_k, has_factor, known;
    uint64_t h_from;
} a;

uint64_t row_of(uint64_t base)
{
    return base + uint64_t(int64_t(gl_WorkGroupID.x) * a.ld * 4l);
}
