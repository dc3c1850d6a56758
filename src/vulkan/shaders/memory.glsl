// Memory by the addresses in arguments (cuda/args.h).
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes { uint8_t at[]; };

// ek_cuda_acts
struct acts {
    uint64_t q;
    int64_t ldq, low, groups[2];
    int k, a_group;
};
