// ek_cuda_linear_args
struct linear_args {
    acts x;
    uint64_t f;
    uint64_t codes, scales;
    uint64_t y, stack;
    uint64_t operand;
    int64_t ldf, ldy;
    int n, rows;
    int group_shift;
    int zero, biased, f32_scales, f16_scales;
    int pass, levels, split, share, slots;
};
