// A head of up to 512 elements in shared memory: normed, then rotated (ops/rows/rows.h).
const int MAX_HEAD = 512;
shared float head_at[MAX_HEAD];

// ek_cuda_head
struct head_rule {
    uint64_t norm, cos, sin;
    int64_t ld_table;
    float eps;
    int rotated;
};

#define SQUARES_OF head_at
// The chain of squares of a lane. Its 16 elements in SQUARES_OF, in shared memory, begin with number `from`. The
// device's fma is exact here unless a square, and so the sum so far, may be denormal: for a number below 2^-63.
float squares_from(int from)
{
    float sum = 0.0;
#if !EK_SOFT
    bool small = false;
    float x;
#define SQUARE(i)                                            \
    x = SQUARES_OF[from + i * 16];                           \
    small = small || (u_(x) << 1) - 1u < 0x3fffffffu;        \
    sum = normal_fma(x, x, sum);
    for (int end = from + 256; from < end; from += 64) {
        SQUARE(0) SQUARE(1) SQUARE(2) SQUARE(3)
    }
    if (!small) return sum;
    sum = 0.0, from -= 256;
#endif
    for (int i = 0; i < 16; i++) {
        const float y = SQUARES_OF[from + i * 16];
        sum = fma_(y, y, sum); // absent elements are 0 and change nothing
    }
    return sum;
}
shared vec4 lane_sum[MAX_HEAD / 64]; // 16 lanes of a block of 256 elements

vec4 add4(vec4 a, vec4 b)
{
    return vec4(add_(a.x, b.x), add_(a.y, b.y), add_(a.z, b.z), add_(a.w, b.w));
}

// The lanes of blocks are added 8, 4, 2 and 1 apart, and blocks by T. Each thread does this for itself. Zeros follow
// the head.
float sum_of_squares(int dim)
{
    const int thread = int(gl_LocalInvocationID.x);
    if (thread < MAX_HEAD / 16 && thread / 16 * 256 < dim)
        lane_sum[thread / 4][thread % 4] = squares_from(thread / 16 * 256 + thread % 16);
    barrier();
    float sum = 0.0;
    [[dont_unroll]] for (int block = 0; block * 256 < dim; block++) {
        const vec4 of_4 = add4(add4(lane_sum[block * 4], lane_sum[block * 4 + 2]),
                               add4(lane_sum[block * 4 + 1], lane_sum[block * 4 + 3]));
        sum = add_(sum, add_(add_(of_4.x, of_4.z), add_(of_4.y, of_4.w)));
    }
    return sum;
}

float norm_factor(float squares, int n, float eps)
{
    return div_(1.0, sqrt_(add_(div_(squares, float(n)), eps)));
}

// Puts the head at `from` into head_at. Call a barrier after it.
void load_head(Floats from, int dim)
{
    for (int d = int(gl_LocalInvocationID.x); d < (dim + 255 & ~255); d += THREADS) head_at[d] = d < dim ? from.at[d] : 0.0;
}

// Finishes a head of row r, by all threads, to which it is visible; norm 0: without weights, cos 0: not rotated.
void finish_head(head_rule rule, int64_t r, int dim)
{
    const float f = norm_factor(sum_of_squares(dim), dim, rule.eps);
    Floats cos = Floats(rule.cos + uint64_t(r * rule.ld_table * 4l)), sin = Floats(rule.sin + uint64_t(r * rule.ld_table * 4l));
    Floats w = Floats(rule.norm);
    const int middle = dim / 2;
    for (int j = int(gl_LocalInvocationID.x); j < middle; j += THREADS) {
        float x0 = mul_(head_at[j], f), x1 = mul_(head_at[j + middle], f);
        if (rule.norm != 0ul) x0 = mul_(x0, w.at[j]), x1 = mul_(x1, w.at[j + middle]);
        if (rule.cos != 0ul && j < rule.rotated) {
            const float c = cos.at[j], s = sin.at[j], turned = fma_(negated(x1), s, mul_(x0, c));
            x1 = fma_(x0, s, mul_(x1, c));
            x0 = turned;
        }
        head_at[j] = x0, head_at[j + middle] = x1;
    }
    barrier();
}
