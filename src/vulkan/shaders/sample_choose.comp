// Rows with limits: candidates in order, the limits, the draw. A row that needs more than MAX_KEYS candidates in order, or
// whose top_k is above MAX_CANDIDATES, is UNDECIDED: sample_sort.comp decides it. grid (rows)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "rank.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;

const int MAX_KEYS = 2048;
shared uint key_value[MAX_KEYS], key_token[MAX_KEYS], digits[256];
shared float weight[MAX_KEYS];
shared uint digit_found;
shared int found, kept, left;
#include "sample_tree.glsl"

// The k-th largest of the maxima of a row's blocks, by digits of 8 bits.
uint kth_largest(Words maxima, int n, int k)
{
    const int thread = int(gl_LocalInvocationID.x);
    uint prefix = 0u;
    for (int shift = 24; shift >= 0; shift -= 8) {
        digits[thread] = 0u;
        barrier();
        for (int i = thread; i < n; i += 256)
            if (shift == 24 || maxima.at[i] >> (shift + 8) == prefix) atomicAdd(digits[maxima.at[i] >> shift & 255u], 1u);
        barrier();
        if (thread == 0) {
            int before = 0, digit = 255;
            for (; before + int(digits[digit]) < k; digit--) before += int(digits[digit]);
            digit_found = uint(digit), left = k - before;
        }
        barrier();
        prefix = prefix << 8 | digit_found, k = left;
        barrier();
    }
    return prefix;
}

// Lists values from `bound` on and their tokens, in any order. Returns their number; only MAX_KEYS of them have room.
int collect(Floats z, Words maxima, int blocks, uint bound)
{
    const int thread = int(gl_LocalInvocationID.x);
    if (thread == 0) found = 0;
    barrier();
    for (int b = thread / BLOCK; b < blocks; b += 256 / BLOCK) {
        const int at = b * BLOCK + thread % BLOCK;
        if (maxima.at[b] < bound || at >= a.vocab_size) continue;
        const float v = z.at[at];
        if (!less_(MINUS_INFINITY, v) || ordered(v) < bound) continue;
        const int place = atomicAdd(found, 1);
        if (place < MAX_KEYS) key_value[place] = ordered(v), key_token[place] = uint(at);
    }
    barrier();
    return found;
}

bool is_less(int x, int y)
{
    return key_value[x] < key_value[y] || (key_value[x] == key_value[y] && key_token[x] > key_token[y]);
}

// Bitonic, descending.
void sort(int count)
{
    const int thread = int(gl_LocalInvocationID.x);
    int size = 2;
    while (size < count) size *= 2;
    for (int i = count + thread; i < size; i += 256) key_value[i] = 0u, key_token[i] = 0xffffffffu;
    for (int run = 2; run <= size; run *= 2)
        for (int apart = run / 2; apart > 0; apart /= 2) {
            barrier();
            for (int i = thread; i < size / 2; i += 256) {
                const int low = i / apart * 2 * apart + i % apart, high = low + apart;
                if (is_less(low, high) != ((low & run) == 0)) continue;
                const uint v = key_value[low], t = key_token[low];
                key_value[low] = key_value[high], key_token[low] = key_token[high];
                key_value[high] = v, key_token[high] = t;
            }
        }
    barrier();
}

// The number of keys, among the first `limit`, that the limits keep.
int keep(options o, int row, float top, int limit)
{
    const int thread = int(gl_LocalInvocationID.x);
    float total = 0.0;
    if (cuts_p(o) && !cuts_k(o)) total = total_of_leaves(row);
    for (int i = thread; i < limit; i += 256) weight[i] = exp_(sub_(unordered(key_value[i]), top));
    barrier();
    if (thread == 0) {
        float sum = 0.0;
        int i = 0;
        if (cuts_p(o) && cuts_k(o))
            for (int k = 0; k < limit; k++) total = add_(total, weight[k]);
        for (; i < limit; i++) {
            if (i > 0 && cuts_p(o) && !less_(sum, mul_(o.top_p, total))) break;
            if (i > 0 && less_(weight[i], o.min_p)) break;
            sum = add_(sum, weight[i]);
        }
        kept = i;
    }
    barrier();
    return kept;
}

void main()
{
    const int row = int(gl_WorkGroupID.x), thread = int(gl_LocalInvocationID.x), blocks = blocks_of_row();
    const options o = Options(a.rows).at[row];
    if (greedy(o) || unlimited(o)) return;
    uint first;
    const uint top = find_top(o, row, first);
    const bool cut_k = cuts_k(o);
    Ints token = Ints(a.token);
    if (top == 0u || (cut_k && o.top_k > MAX_CANDIDATES)) {
        if (thread == 0) token.at[row] = top == 0u ? -1 : UNDECIDED;
        return;
    }
    // as many block maxima as wanted are at least the bound, so at least as many values are
    const int want = cut_k ? o.top_k : MAX_CANDIDATES;
    const uint bound = want < blocks ? kth_largest(maxima_of(row), blocks, want) : NOTHING;
    const int count = collect(Floats(o.logits), maxima_of(row), blocks, bound);
    const bool complete = bound == NOTHING;
    if (count > MAX_KEYS || (!complete && count < want)) {
        if (thread == 0) token.at[row] = UNDECIDED;
        return;
    }
    sort(count);
    const int limit = cut_k ? min(o.top_k, count) : count;
    const int end = cuts_p(o) || less_(0.0, o.min_p) ? keep(o, row, unordered(top), limit) : limit;
    uint value = 0u, index = 0xffffffffu;
    for (int i = thread; i < end; i += 256) {
        const uint k = drawn(o, unordered(key_value[i]), key_token[i]);
        if (k > value || (k == value && key_token[i] < index)) value = k, index = key_token[i];
    }
    find_best(value, index);
    if (thread != 0) return;
    // the list continued after the sorted part, and a later candidate could have won
    const bool open = !complete && !cut_k && end == count;
    const bool sure = !open || less_(add_(unordered(key_value[count - 1]), MAX_GUMBEL), unordered(best_value[0]));
    token.at[row] = sure ? int(best_index[0]) : UNDECIDED;
}
