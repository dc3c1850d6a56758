// Products of Form Q for many rows. Activations are in groups of 32 or 64, or (GROUP_16, without matrices) 16. A
// workgroup has BM rows and BN outputs. Their codes of a unit of 64 inputs lie in shared memory, beside those of the
// next unit. A thread has ELEMENTS sums. COOPERATIVE: sums of products by matrices of bytes, 16 x 16 x 32, of a
// subgroup's 32 threads. The driver chooses the elements of each thread, and a matrix of numbers tells them. Otherwise
// by packed products. grid (ceil(panels / (BN / 16)), ceil(rows / BM))
//
// Chains use the device's fma directly. If no scale of weights or rows is small (is_small) and not 0, all numbers of a
// chain are multiples of 2^-126 and not denormal. A workgroup that finds such a scale begins again, with care.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "dot.glsl"
#include "jobs.glsl"
#include "unit.glsl"
layout(local_size_x = 256) in;

#ifdef COOPERATIVE
const int BM = SUBGROUPS_DOWN * DOWN * 16, BN = 8 / SUBGROUPS_DOWN * ACROSS * 16, ELEMENTS = DOWN * ACROSS * 8;
#include "matrices.glsl"
shared int number_at[256];
#else
#if defined(GROUP_16) && LIMBS == 2
const int DOWN = 2; // rows have more quads here, and all have to fit into 32 KB
#else
const int DOWN = 4;
#endif
const int ACROSS = 4, BM = 16 * DOWN, BN = 64, ELEMENTS = DOWN * ACROSS;
#endif
#if EK_SOFT
#define REPEAT [[dont_unroll]]
#else
#define REPEAT [[unroll]]
#endif
const int LEVELS = 5; // levels of a thread's nodes of T, for fewer than 32 leaves

// Quads 0 to 3 of a row are codes. Quad 4, and with groups of 16 also quad 5, has values of two groups: sx, X of rows;
// s, b' of outputs. With five quads, rows begin in different banks.
#ifdef GROUP_16
const int ROW = 6, GROUPS = 4, STEP = 1; // quads of a step
#else
const int ROW = 5, GROUPS = 2, STEP = 2;
#endif
const int ACTS = LIMBS * BM * ROW, CODES = BN * ROW;
shared uvec4 act_at[2 * ACTS], code_at[2 * CODES];
shared uint careful;

#if EK_SOFT
uvec4 left_quad(int i)
{
    return act_at[i];
}

uvec4 right_quad(int i)
{
    return code_at[i];
}
#endif

// Values from the arguments, read once.
int n_inputs, a_group, n_units, group_shift, scale_bytes; // bytes: of a group
bool biased, f32_scales, f16_scales;
uint few; // for rows: the bits of 2^-78, 2^-55 or 2^-40, because a chain's numbers are multiples of the last bits of sx and of a scale

// --- a unit, from memory to registers and on to shared memory

const int ACT_QUADS = (LIMBS * BM * 4 + 255) / 256, CODE_QUADS = (BN / 16 * 32 * BITS / 4 + 255) / 256;
const int ROW_PAIRS = (BM * GROUPS + 255) / 256, OUTPUT_PAIRS = (BN * GROUPS + 255) / 256;
uvec4 next_act[ACT_QUADS], next_code[CODE_QUADS];
uvec2 next_row[ROW_PAIRS], next_output[OUTPUT_PAIRS];
uint64_t act_from[ACT_QUADS], code_from[CODE_QUADS], row_from[ROW_PAIRS], scale_from[OUTPUT_PAIRS];

bool is_small(float x, uint limit)
{
    const uint u = u_(x) & 0x7fffffffu;
    return u != 0u && u < limit;
}

uint64_t record_of(int row)
{
    return args.a.x.q + uint64_t(int64_t(row_read(min(row, end_row - 1))) * args.a.x.ldq);
}

void begin(int row0, int panel0)
{
    const int thread = int(gl_LocalInvocationIndex);
    n_inputs = args.a.x.k, a_group = args.a.x.a_group, biased = args.a.biased != 0;
    n_units = (n_inputs + UNIT - 1) / UNIT, group_shift = args.a.group_shift;
    f32_scales = args.a.f32_scales != 0, f16_scales = args.a.f16_scales != 0;
    few = f32_scales ? 0x2b800000u : f16_scales ? 0x18800000u : 0x24000000u;
    const int last_panel = (args.a.n + 15) / 16 - 1, parts = biased ? 2 : 1, size = f32_scales ? 4 : 2;
    scale_bytes = 16 * parts * size;
    [[unroll]] for (int j = 0; j < ACT_QUADS; j++) {
        const int i = min(j * 256 + thread, LIMBS * BM * 4 - 1);
        act_from[j] = record_of(row0 + i / 4 % BM) + uint64_t(i / (BM * 4)) * uint64_t(args.a.x.low) + uint64_t(i % 4 * 16);
    }
    [[unroll]] for (int j = 0; j < CODE_QUADS; j++) {
        const int i = min(j * 256 + thread, BN / 16 * BITS * 8 - 1);
        code_from[j] = unit_at(min(panel0 + i / (BITS * 8), last_panel), 0) + uint64_t(i % (BITS * 8) * 16);
    }
    [[unroll]] for (int j = 0; j < ROW_PAIRS; j++)
        row_from[j] = record_of(row0 + (j * 256 + thread) % BM) + uint64_t(args.a.x.groups[LIMBS - 1]);
    [[unroll]] for (int j = 0; j < OUTPUT_PAIRS; j++) {
        const int o = (j * 256 + thread) % BN, at = (o % 8 * 2 + o % 16 / 8) * parts * size;
        const int64_t g = int64_t(min(panel0 + o / 16, last_panel)) * int64_t(n_inputs >> group_shift);
        scale_from[j] = scales_at + uint64_t(g * int64_t(scale_bytes) + int64_t(at));
    }
}

float read_scale(uint64_t at)
{
    if (f32_scales) return Floats(at).at[0];
    const uint u = uint(Halves(at).at[0]);
    return f16_scales ? half_to_float(u) : bf16_to_float(u);
}

void fetch(int unit)
{
    const int thread = int(gl_LocalInvocationIndex), each = UNIT / a_group;
    [[unroll]] for (int j = 0; j < ACT_QUADS; j++) next_act[j] = Quads(act_from[j] + uint64_t(unit * UNIT)).at[0];
    [[unroll]] for (int j = 0; j < CODE_QUADS; j++) next_code[j] = Quads(code_from[j] + uint64_t(unit) * uint64_t(BITS * 128)).at[0];
    [[unroll]] for (int j = 0; j < ROW_PAIRS; j++) {
        const int i = j * 256 + thread, g = unit * each + i / BM;
        next_row[j] = uvec2(0u);
        if (i >= BM * each || g * a_group >= n_inputs) continue;
        const uvec2 x = Pairs(row_from[j] + uint64_t(g * 8)).at[0];
        if (is_small(f_(x.x), few)) careful = 1u;
        next_row[j] = x;
    }
    [[unroll]] for (int j = 0; j < OUTPUT_PAIRS; j++) {
        const int i = j * 256 + thread, g = min(unit * UNIT + i / BN * a_group, n_inputs - 1) >> group_shift;
        next_output[j] = uvec2(0u);
        if (i >= BN * each) continue;
        const uint64_t at = scale_from[j] + uint64_t(g * scale_bytes);
        vec2 sb = vec2(read_scale(at), 0.0);
        if (biased) sb.y = fma_(float(args.a.zero), sb.x, read_scale(at + uint64_t(f32_scales ? 4 : 2)));
        if (is_small(sb.x, 0x2b800000u) || is_small(sb.y, 0x2b800000u)) careful = 1u; // 2^-40
        next_output[j] = uvec2(u_(BITS == 4 ? mul_(sb.x, 0.0625) : sb.x), u_(sb.y));   // codes come as 16 c
    }
}

// Eight codes of an output: words in their stored order.
void place_codes(int at, int step, int t, uvec2 words)
{
    const int quad = a_group == 64 ? t : step * 2 + t / 2;
    if ((a_group == 64 ? step : t % 2) == 0) code_at[at + quad].xy = words;
    else code_at[at + quad].zw = words;
}

void place(int b)
{
    const int thread = int(gl_LocalInvocationIndex), each = UNIT / a_group;
    [[unroll]] for (int j = 0; j < ACT_QUADS; j++) {
        const int i = j * 256 + thread;
        if (i < LIMBS * BM * 4) act_at[b * ACTS + i / 4 * ROW + i % 4] = next_act[j];
    }
    [[unroll]] for (int j = 0; j < CODE_QUADS; j++) {
        const int i = j * 256 + thread, p = i / (BITS * 8), t = i % 32 / 8;
        if (p >= BN / 16) break;
        const int low = b * CODES + (p * 16 + i % 8) * ROW, high = low + 8 * ROW;
        const uvec4 w = next_code[j];
#ifdef GROUP_16
        const int quad = i / 32 % 2 * 2;
        code_at[low + quad][t] = w.x, code_at[low + quad + 1][t] = w.z;
        code_at[high + quad][t] = w.y, code_at[high + quad + 1][t] = w.w;
#elif BITS == 8
        const int step = i / 32 % 2;
        place_codes(low, step, t, w.xz);
        place_codes(high, step, t, w.yw);
#else
        place_codes(low, 0, t, uvec2(low_nibbles(w.x), high_nibbles(w.x)));
        place_codes(high, 0, t, uvec2(low_nibbles(w.y), high_nibbles(w.y)));
        place_codes(low, 1, t, uvec2(low_nibbles(w.z), high_nibbles(w.z)));
        place_codes(high, 1, t, uvec2(low_nibbles(w.w), high_nibbles(w.w)));
#endif
    }
    [[unroll]] for (int j = 0; j < ROW_PAIRS; j++) {
        const int i = j * 256 + thread, g = i / BM, at = b * ACTS + i % BM * ROW + 4 + g / 2;
        if (g < each && g % 2 == 0) act_at[at].xy = next_row[j];
        else if (g < each) act_at[at].zw = next_row[j];
    }
    [[unroll]] for (int j = 0; j < OUTPUT_PAIRS; j++) {
        const int i = j * 256 + thread, g = i / BN, at = b * CODES + i % BN * ROW + 4 + g / 2;
        if (g < each && g % 2 == 0) code_at[at].xy = next_output[j];
        else if (g < each) code_at[at].zw = next_output[j];
    }
}

// --- sums

float sum_at[ELEMENTS], node_at[LEVELS * ELEMENTS];
int row_of_element[ELEMENTS / ACROSS], output_of_element[ELEMENTS / DOWN]; // of the tile

vec2 pair_of(uvec4 v, int g)
{
    return g == 0 ? vec2(f_(v.x), f_(v.y)) : vec2(f_(v.z), f_(v.w));
}

void add_group(int e, vec2 sb, vec2 x, int sum, bool with_bias)
{
    float t = mul_(sb.x, float(sum));
    if (with_bias) t = normal_fma(sb.y, x.y, t);
    sum_at[e] = normal_fma(t, x.x, sum_at[e]);
}

#ifdef COOPERATIVE
const int EACH = 8; // elements of a matrix

void find_elements()
{
    const int thread = int(gl_LocalInvocationIndex), sub = SUBGROUP;
    number_at[thread] = thread;
    barrier();
    SUMS number;
    NUMBERS(number, number_at, 16);
    [[unroll]] for (int c = 0; c < EACH; c++) {
        [[unroll]] for (int i = 0; i < DOWN; i++)
            row_of_element[i * EACH + c] = (sub % SUBGROUPS_DOWN * DOWN + i) * 16 + number[c] / 16;
        [[unroll]] for (int j = 0; j < ACROSS; j++)
            output_of_element[j * EACH + c] = (sub / SUBGROUPS_DOWN * ACROSS + j) * 16 + number[c] % 16;
    }
}

// Groups [g, g + 1) of a unit that has `each`: steps of 32 inputs.
void add_groups(int b, int g, int step0, int steps, bool with_bias)
{
    const int sub = SUBGROUP, row0 = sub % SUBGROUPS_DOWN * DOWN * 16;
    const int output0 = sub / SUBGROUPS_DOWN * ACROSS * 16;
    LEFT left[DOWN * LIMBS * 2];
    vec2 x[DOWN * EACH];
    [[unroll]] for (int i = 0; i < DOWN; i++) {
        [[unroll]] for (int l = 0; l < LIMBS; l++)
            [[unroll]] for (int q = 0; q < 2; q++)
                if (q < steps)
                    LOAD_LEFT(left[(i * LIMBS + l) * 2 + q], act_at, b * ACTS + (l * BM + row0 + i * 16) * ROW + (step0 + q) * 2, ROW);
        [[unroll]] for (int c = 0; c < EACH; c++)
            x[i * EACH + c] = pair_of(act_at[b * ACTS + row_of_element[i * EACH + c] * ROW + 4], g);
    }
    REPEAT for (int j = 0; j < ACROSS; j++) {
        RIGHT right[2];
        vec2 sb[EACH];
        [[unroll]] for (int q = 0; q < 2; q++)
            if (q < steps)
                LOAD_RIGHT(right[q], code_at, b * CODES + (output0 + j * 16) * ROW + (step0 + q) * 2, ROW);
        [[unroll]] for (int c = 0; c < EACH; c++)
            sb[c] = pair_of(code_at[b * CODES + output_of_element[j * EACH + c] * ROW + 4], g);
        REPEAT for (int i = 0; i < DOWN; i++) {
            SUMS high = ZERO_SUMS;
            [[unroll]] for (int q = 0; q < 2; q++)
                if (q < steps) high = ADD_PRODUCT(left[i * LIMBS * 2 + q], right[q], high);
#if LIMBS == 2
            SUMS low = ZERO_SUMS;
            [[unroll]] for (int q = 0; q < 2; q++)
                if (q < steps) low = ADD_PRODUCT(left[(i * LIMBS + 1) * 2 + q], right[q], low);
#endif
            REPEAT for (int c = 0; c < EACH; c++) {
                int sum = high[c];
#if LIMBS == 2
                sum = sum * 256 + low[c];
#endif
                add_group((i * ACROSS + j) * EACH + c, sb[c], x[i * EACH + c], sum, with_bias);
            }
        }
    }
}

int row_of(int e)
{
    return row_of_element[e / (ACROSS * EACH) * EACH + e % EACH];
}

int output_of(int e)
{
    return output_of_element[e / EACH % ACROSS * EACH + e % EACH];
}
#else
void find_elements()
{
    const int thread = int(gl_LocalInvocationIndex);
    [[unroll]] for (int i = 0; i < DOWN; i++) row_of_element[i] = i * 16 + thread / 16;
    [[unroll]] for (int j = 0; j < ACROSS; j++) output_of_element[j] = j * 16 + thread % 16;
}

int dot16(uvec4 a, uvec4 b)
{
    return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
}

void add_groups(int b, int g, int step0, int steps, bool with_bias)
{
    int sum[ELEMENTS];
    [[unroll]] for (int e = 0; e < ELEMENTS; e++) sum[e] = 0;
    [[unroll]] for (int l = 0; l < LIMBS; l++) {
        if (l == 1)
            [[unroll]] for (int e = 0; e < ELEMENTS; e++) sum[e] *= 256;
        for (int quad = step0 * STEP; quad < (step0 + steps) * STEP; quad++) {
            uvec4 right[ACROSS];
            [[unroll]] for (int j = 0; j < ACROSS; j++) right[j] = code_at[b * CODES + output_of_element[j] * ROW + quad];
            [[unroll]] for (int i = 0; i < DOWN; i++) {
                const uvec4 left = act_at[b * ACTS + (l * BM + row_of_element[i]) * ROW + quad];
                [[unroll]] for (int j = 0; j < ACROSS; j++) sum[i * ACROSS + j] += dot16(left, right[j]);
            }
        }
    }
    vec2 sb[ACROSS];
    [[unroll]] for (int j = 0; j < ACROSS; j++) sb[j] = pair_of(code_at[b * CODES + output_of_element[j] * ROW + 4 + g / 2], g % 2);
    REPEAT for (int i = 0; i < DOWN; i++) {
        const vec2 x = pair_of(act_at[b * ACTS + row_of_element[i] * ROW + 4 + g / 2], g % 2);
        REPEAT for (int j = 0; j < ACROSS; j++) add_group(i * ACROSS + j, sb[j], x, sum[i * ACROSS + j], with_bias);
    }
}

int row_of(int e)
{
    return row_of_element[e / ACROSS];
}

int output_of(int e)
{
    return output_of_element[e % ACROSS];
}
#endif

// Adds the thread's leaves number `leaf` of each element, and begins the next ones.
void push_leaves(int leaf)
{
    int level = 0;
    for (; (leaf >> level & 1) != 0; level++)
        [[unroll]] for (int e = 0; e < ELEMENTS; e++) sum_at[e] = add_(node_at[level * ELEMENTS + e], sum_at[e]);
    [[unroll]] for (int e = 0; e < ELEMENTS; e++) node_at[level * ELEMENTS + e] = sum_at[e], sum_at[e] = 0.0;
}

void join_leaves(int leaves)
{
    int level = findLSB(leaves);
    [[unroll]] for (int e = 0; e < ELEMENTS; e++) sum_at[e] = node_at[level * ELEMENTS + e];
    for (level++; leaves >> level != 0; level++) {
        if ((leaves >> level & 1) == 0) continue;
        [[unroll]] for (int e = 0; e < ELEMENTS; e++) sum_at[e] = add_(node_at[level * ELEMENTS + e], sum_at[e]);
    }
}

// Computes an output of a row from memory, with an fma that is exact for denormals, too.
float with_care(int row, int panel, int o)
{
    const int k = n_inputs, each = UNIT / a_group, units = n_units;
    const uint64_t record = record_of(row);
    Floats groups = Floats(record + uint64_t(args.a.x.groups[LIMBS - 1]));
    float node[LEVELS], sum = 0.0;
    for (int unit = 0; unit < units; unit++) {
        uint c[WORDS];
        load_codes(unit_at(panel, unit), o, a_group, c);
        const uint64_t h = record + uint64_t(unit * UNIT);
        ivec4 sums = sums_of(c, h);
#if LIMBS == 2
        sums = sums * 256 + sums_of(c, h + uint64_t(args.a.x.low));
#endif
        sums = sums_of_groups(sums, a_group);
        for (int i = 0; i < each; i++) {
            const int g = unit * each + i;
            if (g * a_group >= k) break;
            const vec2 sb = factors_of(panel, unit, i, o);
            float t = mul_(sb.x, float(sums[i]));
            if (biased) t = fma_(sb.y, groups.at[g * 2 + 1], t);
            sum = fma_(t, groups.at[g * 2], sum);
        }
        if (unit % (LEAF / UNIT) != LEAF / UNIT - 1 && unit != units - 1) continue;
        int level = 0;
        for (; (unit / (LEAF / UNIT) >> level & 1) != 0; level++) sum = add_(node[level], sum);
        node[level] = sum, sum = 0.0;
    }
    const int leaves = (k + LEAF - 1) / LEAF;
    int level = findLSB(leaves);
    sum = node[level];
    for (level++; leaves >> level != 0; level++)
        if ((leaves >> level & 1) != 0) sum = add_(node[level], sum);
    return sum;
}

void add_unit(int unit, bool with_bias)
{
    const int b = unit & 1;
#ifdef GROUP_16
    for (int g = 0; g < GROUPS && unit * UNIT + g * 16 < n_inputs; g++) add_groups(b, g, g, 1, with_bias);
#else
    if (a_group == 64) {
        add_groups(b, 0, 0, 2, with_bias);
        return;
    }
    add_groups(b, 0, 0, 1, with_bias);
    if (unit * UNIT + 32 < n_inputs) add_groups(b, 1, 1, 1, with_bias);
#endif
}

Floats y_of(int row, int panel0, int output_)
{
    return Floats(y_at + uint64_t((int64_t(row) * args.a.ldy + int64_t(panel0 * 16 + output_)) * 4l));
}

void main()
{
    const int panel0 = int(gl_WorkGroupID.x) * (BN / 16);
    if (!open_work(BM)) return;
    const int row0 = first_row;
    if (gl_LocalInvocationIndex == 0) careful = 0u;
    find_elements();
    begin(row0, panel0);
    [[unroll]] for (int e = 0; e < ELEMENTS; e++) sum_at[e] = 0.0;
    barrier();
    fetch(0);
    place(0);
    barrier();
    for (int unit = 0; unit < n_units; unit++) {
        if (unit + 1 < n_units) fetch(unit + 1);
        if (biased) add_unit(unit, true);
        else add_unit(unit, false);
        if (unit % (LEAF / UNIT) == LEAF / UNIT - 1 || unit == n_units - 1) push_leaves(unit / (LEAF / UNIT));
        if (unit + 1 < n_units) place(unit + 1 & 1);
        barrier();
    }
    join_leaves((n_inputs + LEAF - 1) / LEAF);
    const bool again = EK_SOFT == 0 && careful != 0u;
    const int rows = end_row - row0, outputs = args.a.n - panel0 * 16;
    [[unroll]] for (int e = 0; e < ELEMENTS; e++)
        if (!again && row_of(e) < rows && output_of(e) < outputs) y_of(row0 + row_of(e), panel0, output_of(e)).at[0] = sum_at[e];
    if (!again) return;
    for (int i = int(gl_LocalInvocationIndex); i < BM * BN; i += 256) // sums in registers have no number
        if (i / BN < rows && i % BN < outputs)
            y_of(row0 + i / BN, panel0, i % BN).at[0] = with_care(row0 + i / BN, panel0 + i % BN / 16, i % 16);
}
