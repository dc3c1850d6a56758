// The rows and the matrix of a workgroup of products (cuda/model_args.h): of one matrix, or (EXPERTS) of a job's expert
// and of one of two matrices.
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

uint64_t codes_at, scales_at, y_at; // y: of row 0
int first_row, end_row;

#ifdef GATED
// ek_cuda_warp_args
layout(set = 0, binding = 0, scalar) uniform Args {
    linear_args a;
    uint64_t codes2, scales2, u;
    uint64_t jobs, n_jobs, index;
    acts to;
    int64_t ldu, expert_bytes;
    uint64_t y2;
    int known, holds;
} args;
#elif defined(EXPERTS)
// ek_cuda_products_args
layout(set = 0, binding = 0, scalar) uniform Args {
    linear_args a;
    uint64_t codes2, scales2, y2;
    uint64_t jobs, n_jobs, index;
    int64_t expert_bytes;
} args;
#else
layout(set = 0, binding = 0, scalar) uniform Args {
    linear_args a;
} args;
#endif

#if defined(EXPERTS) || defined(GATED)
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Jobs { ivec4 at[]; }; // expert, first, n

// The row of x that is row `row` of y.
int row_read(int row)
{
    return args.index != 0ul ? Ints(args.index).at[row] : row;
}
#endif

#ifdef GATED
uint64_t expert_at; // of a job

void open_matrix(bool second)
{
    codes_at = (second ? args.codes2 : args.a.codes) + expert_at;
    scales_at = (second ? args.scales2 : args.a.scales) + expert_at;
}

// A row, or a job, whose one row it is.
bool open_work(int tile)
{
    first_row = int(gl_WorkGroupID.y), end_row = first_row + 1, expert_at = 0ul;
    if (args.jobs == 0ul) return true;
    if (first_row >= Ints(args.n_jobs).at[0]) return false;
    const ivec4 job = Jobs(args.jobs).at[first_row];
    expert_at = uint64_t(int64_t(job.x) * args.expert_bytes);
    first_row = job.y, end_row = job.y + 1;
    return true;
}
#elif defined(EXPERTS)
// Workgroups y of a job have `tile` rows each. False: there is no work.
bool open_work(int tile)
{
    const int each = (args.a.rows + tile - 1) / tile, number = int(gl_WorkGroupID.y) / each;
    if (number >= Ints(args.n_jobs).at[0]) return false;
    const ivec4 job = Jobs(args.jobs).at[number];
    const uint64_t expert = uint64_t(int64_t(job.x) * args.expert_bytes);
    const bool second = gl_WorkGroupID.z != 0u;
    codes_at = (second ? args.codes2 : args.a.codes) + expert;
    scales_at = (second ? args.scales2 : args.a.scales) + expert;
    y_at = second ? args.y2 : args.a.y;
    first_row = job.y + int(gl_WorkGroupID.y) % each * tile;
    end_row = job.y + job.z;
    return first_row < end_row;
}
#else
bool open_work(int tile)
{
    codes_at = args.a.codes, scales_at = args.a.scales, y_at = args.a.y;
    first_row = int(gl_WorkGroupID.y) * tile;
    end_row = args.a.rows;
    return true;
}

int row_read(int row)
{
    return row;
}
#endif
