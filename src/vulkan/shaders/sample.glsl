// Code that the shaders of sampling share (engine/sample/sampler.h, docs/NUMERICS.md 7): a row's options, its best
// token, the noise of a token. Maxima of blocks of 64 values are at a.block as integers in the values' order
// (rank.glsl); `best` and `draw` of ek_cuda_sample_args are unused.
struct options { // ek_cuda_sample
    uint64_t logits, bias, count, allowed;
    uint64_t seed;
    int n_bias, n_count;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int top_k, pos;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Options { options at[]; };

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t rows, suppress, best, draw, block, leaf, token, sorted;
    int n_suppress, vocab_size, n_rows;
};
layout(push_constant, scalar) uniform Push { Args a; };

const int BLOCK = 64, UNDECIDED = -3, MAX_CANDIDATES = 1024;
const uint NOTHING = 0x007fffffu; // minus infinity in the order of values
const float MAX_GUMBEL = 22.875;

#define MINUS_INFINITY f_(0xff800000u)

// Barrier. Afterwards all threads of the workgroup see what they wrote to memory.
void settle()
{
    memoryBarrierBuffer();
    barrier();
}

bool greedy(options o)
{
    return less_(o.temperature, 1e-5);
}

bool cuts_k(options o)
{
    return o.top_k > 0 && o.top_k < a.vocab_size;
}

bool cuts_p(options o)
{
    return less_(o.top_p, 1.0);
}

bool unlimited(options o)
{
    return !cuts_k(o) && !cuts_p(o) && !less_(0.0, o.min_p);
}

float unordered(uint k)
{
    return f_((k & 0x80000000u) != 0u ? k & 0x7fffffffu : ~k);
}

int blocks_of_row()
{
    return (a.vocab_size + BLOCK - 1) / BLOCK;
}

Words maxima_of(int row)
{
    return Words(a.block + uint64_t(int64_t(row) * int64_t(blocks_of_row()) * 4l));
}

int leaves_of_row()
{
    return (a.vocab_size + 255) / 256;
}

Floats leaves_of(int row)
{
    return Floats(a.leaf + uint64_t(int64_t(row) * int64_t(leaves_of_row()) * 4l));
}

// The largest value of a row, in the order of values, and the first token with it; 0: every token is masked. By all 256
// threads.
uint find_top(options o, int row, out uint token)
{
    const int thread = int(gl_LocalInvocationID.x), blocks = blocks_of_row();
    Words maxima = maxima_of(row);
    uint value = NOTHING, index = 0xffffffffu;
    for (int b = thread; b < blocks; b += 256)
        if (maxima.at[b] > value) value = maxima.at[b], index = uint(b);
    find_best(value > NOTHING ? value : 0u, index);
    const uint top = best_value[0];
    const int at = int(best_index[0]) * BLOCK + thread;
    barrier();
    const bool has = top != 0u && thread < BLOCK && at < a.vocab_size && ordered(Floats(o.logits).at[at]) == top;
    find_best(has ? top : 0u, uint(at));
    token = best_index[0];
    barrier();
    return top;
}

// Philox4x32-10 (base/hash/rng.h), of which token % 4 is one word.
uint noise(uint64_t seed, int pos, uint token)
{
    uint c0 = uint(pos), c1 = token / 4u, c2 = 0u, c3 = 0u, k0 = uint(seed), k1 = uint(seed >> 32);
    for (int i = 0; i < 10; i++) {
        const uint64_t p0 = 0xD2511F53ul * uint64_t(c0), p1 = 0xCD9E8D57ul * uint64_t(c2);
        const uint n0 = uint(p1 >> 32) ^ c1 ^ k0, n2 = uint(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = uint(p1), c2 = n2, c3 = uint(p0);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    const uint lane = token % 4u;
    return lane == 0u ? c0 : lane == 1u ? c1 : lane == 2u ? c2 : c3;
}

float plus_half(uint n)
{
    return normal_fma(float(n >> 16), 65536.0, add_(float(n & 0xffffu), 0.5));
}

float gumbel(options o, uint token)
{
    const uint n = noise(o.seed, o.pos, token);
    const float e = n < 1u << 30 ? ln_tail(0.0, mul_(plus_half(n), -2.3283064365386963e-10))
                                 : ln_(mul_(plus_half(~n), 2.3283064365386963e-10));
    return negated(ln_(negated(e)));
}

// A token's value with its noise, in the order of values.
uint drawn(options o, float z, uint token)
{
    return ordered(add_(z, gumbel(o, token)));
}
