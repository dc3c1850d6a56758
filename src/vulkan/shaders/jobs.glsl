// The rows and the matrix of a workgroup of products (cuda/model_args.h): of one matrix, or (EXPERTS) of a job's expert
// and of one of two matrices.
uint64_t codes_at, scales_at, y_at; // y: of row 0
int first_row, end_row;

#ifdef EXPERTS
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

#ifdef EXPERTS
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Jobs { ivec4 at[]; }; // expert, first, n

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

// The row of x that is row `row` of y.
int row_read(int row)
{
    return args.index != 0ul ? Ints(args.index).at[row] : row;
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
