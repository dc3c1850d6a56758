// Rows that sample_choose.comp left undecided: sorts the whole row. grid (up to EK_CUDA_SORTERS)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

const int CHUNK = 2048, DIGITS = 16;
shared uint place[DIGITS * 256]; // of a digit and a thread; later what a sum was before each weight
shared float weight[CHUNK];
shared uint part[256];
shared float total, sum;
shared int kept, candidates;
#include "sample_tree.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer Keys { uvec2 at[]; }; // value, token

// Counts become places: larger digits come first, and within a digit threads in order.
void scan_places()
{
    const int thread = int(gl_LocalInvocationID.x);
    uint own = 0u;
    for (int i = 0; i < DIGITS; i++) {
        const uint n = place[thread * DIGITS + i];
        place[thread * DIGITS + i] = own;
        own += n;
    }
    part[thread] = own;
    barrier();
    for (int apart = 1; apart < 256; apart *= 2) {
        const uint before = thread >= apart ? part[thread - apart] : 0u;
        barrier();
        part[thread] += before;
        barrier();
    }
    const uint before = thread > 0 ? part[thread - 1] : 0u;
    for (int i = 0; i < DIGITS; i++) place[thread * DIGITS + i] += before;
    barrier();
}

// One digit of a stable sort, descending: each thread has a run of `from`.
void sort_digit(Keys to, Keys from, int shift)
{
    const int thread = int(gl_LocalInvocationID.x), run = (a.vocab_size + 255) / 256, first = thread * run,
              end = min(first + run, a.vocab_size);
    for (int i = 0; i < DIGITS; i++) place[i * 256 + thread] = 0u;
    for (int i = first; i < end; i++) place[int(15u - (from.at[i].x >> shift & 15u)) * 256 + thread]++;
    barrier();
    scan_places();
    for (int i = first; i < end; i++) {
        const uvec2 key = from.at[i];
        to.at[place[int(15u - (key.x >> shift & 15u)) * 256 + thread]++] = key;
    }
    settle();
}

// Sorts in descending order. `two` has room for the keys in between.
void sort(Keys one, Keys two, Floats z)
{
    for (int i = int(gl_LocalInvocationID.x); i < a.vocab_size; i += 256) one.at[i] = uvec2(ordered(z.at[i]), uint(i));
    settle();
    for (int shift = 0; shift < 32; shift += 8) sort_digit(two, one, shift), sort_digit(one, two, shift + 4);
}

// Adds weights one after the other: the total of the first `limit` keys, or (keeps) up to the key at which a limit ends
// them.
void add_weights(options o, Keys key, float top, int limit, bool keeps)
{
    const int thread = int(gl_LocalInvocationID.x);
    for (int first = 0; first < limit; first += CHUNK) {
        const int count = min(limit - first, CHUNK);
        barrier();
        if (kept < limit) break;
        for (int i = thread; i < count; i += 256) weight[i] = exp_(sub_(unordered(key.at[first + i].x), top));
        barrier();
        if (thread == 0) {
            float upto = keeps ? sum : total;
            for (int i = 0; i < count; i++) place[i] = u_(upto), upto = add_(upto, weight[i]);
            if (keeps) sum = upto;
            else total = upto;
        }
        barrier();
        for (int i = thread; keeps && i < count; i += 256)
            if (first + i > 0 && ((cuts_p(o) && !less_(f_(place[i]), mul_(o.top_p, total))) || less_(weight[i], o.min_p)))
                atomicMin(kept, first + i);
    }
    barrier();
}

int decide(options o, int row, Keys key)
{
    const int thread = int(gl_LocalInvocationID.x), n = a.vocab_size;
    uint first, value = 0u, index = 0xffffffffu;
    const float top = unordered(find_top(o, row, first));
    for (int i = thread; i < n; i += 256) // the last candidate
        if (key.at[i].x > NOTHING && (i + 1 == n || key.at[i + 1].x <= NOTHING)) candidates = i + 1;
    if (cuts_p(o) && !cuts_k(o)) {
        const float all = total_of_leaves(row);
        if (thread == 0) total = all;
    }
    barrier();
    const int limit = cuts_k(o) ? min(o.top_k, candidates) : candidates;
    if (cuts_p(o) && cuts_k(o)) add_weights(o, key, top, limit, false);
    if (cuts_p(o) || less_(0.0, o.min_p)) add_weights(o, key, top, limit, true);
    const int end = min(kept, limit);
    for (int i = thread; i < end; i += 256) {
        const uint k = drawn(o, unordered(key.at[i].x), key.at[i].y);
        if (k > value || (k == value && key.at[i].y < index)) value = k, index = key.at[i].y;
    }
    find_best(value, index);
    return int(best_index[0]);
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x), n = a.vocab_size;
    const uint64_t mine = a.sorted + uint64_t(gl_WorkGroupID.x) * 16ul * uint64_t(n);
    Keys one = Keys(mine), two = Keys(mine + 8ul * uint64_t(n));
    Ints token = Ints(a.token);
    for (int row = int(gl_WorkGroupID.x); row < a.n_rows; row += int(gl_NumWorkGroups.x)) {
        barrier();
        if (token.at[row] != UNDECIDED) continue; // the same for all threads, because only this workgroup wrote it
        const options o = Options(a.rows).at[row];
        if (thread == 0) sum = total = 0.0, kept = n, candidates = 0;
        sort(one, two, Floats(o.logits));
        const int result = decide(o, row, one);
        barrier();
        if (thread == 0) token.at[row] = result;
    }
}
