// Products of Form Q for many rows: a workgroup has 64 outputs and 32 rows, a thread an output and 8 of them. Rows of a
// unit lie in shared memory. grid (ceil(panels / 4), ceil(rows / 32))
//
// Chains use the device's fma directly. If no scale of weights or rows is below 2^-40 and not 0, all numbers of a chain
// are multiples of 2^-126 and not denormal. A workgroup that finds such a scale begins again, with care.
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "dot.glsl"
#include "jobs.glsl"
#include "unit.glsl"
layout(local_size_x = 256) in;

const int ROWS = 32, EACH = 8, PANELS = 4, LEVELS = 9;
shared uvec4 limb_at[LIMBS * ROWS * 4];
shared vec2 group_at[ROWS * 4]; // sx, X of a unit's groups
shared uint careful;

bool is_small(float x)
{
    const uint u = u_(x) & 0x7fffffffu;
    return u != 0u && u < 0x2b800000u; // 2^-40
}

uint64_t record_of(int row)
{
    return args.a.x.q + uint64_t(int64_t(min(row, args.a.rows - 1)) * args.a.x.ldq);
}

// A unit's limbs and groups of the workgroup's rows.
void stage_unit(int unit, int row0)
{
    const int thread = int(gl_LocalInvocationID.x), a_group = args.a.x.a_group, each = UNIT / a_group;
    for (int i = thread; i < LIMBS * ROWS * 4; i += 256) {
        const int limb = i / (ROWS * 4), r = i / 4 % ROWS;
        const uint64_t at = record_of(row0 + r) + uint64_t(limb) * uint64_t(args.a.x.low) + uint64_t(unit * UNIT);
        limb_at[i] = Quads(at).at[i % 4];
    }
    if (thread < ROWS * 4) {
        const int r = thread / 4, g = unit * each + thread % 4;
        vec2 x = vec2(0.0);
        if (thread % 4 < each && g * a_group < args.a.x.k) {
            Floats groups = Floats(record_of(row0 + r) + uint64_t(args.a.x.groups[LIMBS - 1]));
            x = vec2(groups.at[g * 2], groups.at[g * 2 + 1]);
            if (is_small(x.x)) atomicOr(careful, 1u);
        }
        group_at[thread] = x;
    }
}

ivec4 unit_sums(uint c[WORDS], int r)
{
    ivec4 sum = ivec4(0);
    [[unroll]] for (int i = 0; i < 4; i++) sum[i] = sum_of_16(c, i, limb_at[r * 4 + i]);
#if LIMBS == 2
    sum *= 256;
    [[unroll]] for (int i = 0; i < 4; i++) sum[i] += sum_of_16(c, i, limb_at[(ROWS + r) * 4 + i]);
#endif
    return sums_of_groups(sum, args.a.x.a_group);
}

// All of an output and its rows. `care`: with an fma that is exact for denormals, too.
void run(int panel, int o, int row0, int mine, bool care, out float y[EACH])
{
    const int k = args.a.x.k, a_group = args.a.x.a_group, each = UNIT / a_group, units = (k + UNIT - 1) / UNIT;
    const bool there = panel * 16 < args.a.n;
    float node[LEVELS * EACH], a[EACH];
    for (int unit = 0; unit < units; unit++) {
        barrier();
        stage_unit(unit, row0);
        barrier();
        if (unit % (LEAF / UNIT) == 0)
            for (int r = 0; r < EACH; r++) a[r] = 0.0;
        if (there) {
            uint c[WORDS];
            load_codes(unit_at(panel, unit), o, a_group, c);
            vec2 sb[4];
            for (int i = 0; i < each; i++) {
                sb[i] = factors_of(panel, unit, i, o);
                if (!care && (is_small(sb[i].x) || is_small(sb[i].y))) atomicOr(careful, 1u);
            }
            for (int r = 0; r < EACH; r++) {
                const ivec4 sum = unit_sums(c, mine + r);
                for (int i = 0; i < each; i++) {
                    const vec2 x = group_at[(mine + r) * 4 + i];
                    float t = mul_(sb[i].x, float(sum[i]));
                    if ((unit * each + i) * a_group >= k) break;
                    if (care) {
                        if (args.a.biased != 0) t = fma_(sb[i].y, x.y, t);
                        a[r] = fma_(t, x.x, a[r]);
                    } else {
                        if (args.a.biased != 0) t = normal_fma(sb[i].y, x.y, t);
                        a[r] = normal_fma(t, x.x, a[r]);
                    }
                }
            }
        }
        if (unit % (LEAF / UNIT) != LEAF / UNIT - 1 && unit != units - 1) continue;
        for (int r = 0; r < EACH; r++) {
            int level = 0;
            for (; (unit / (LEAF / UNIT) >> level & 1) != 0; level++) a[r] = add_(node[level * EACH + r], a[r]);
            node[level * EACH + r] = a[r];
        }
    }
    const int leaves = (k + LEAF - 1) / LEAF;
    for (int r = 0; r < EACH; r++) {
        int level = findLSB(leaves);
        y[r] = node[level * EACH + r];
        for (level++; level < LEVELS; level++)
            if ((leaves >> level & 1) != 0) y[r] = add_(node[level * EACH + r], y[r]);
    }
}

void main()
{
    const int thread = int(gl_LocalInvocationID.x), panel = int(gl_WorkGroupID.x) * PANELS + thread % 64 / 16;
    const int o = thread % 16, row0 = int(gl_WorkGroupID.y) * ROWS, mine = thread / 64 * EACH;
    float y[EACH];
    open_work(ROWS);
    if (thread == 0) careful = 0u;
    run(panel, o, row0, mine, false, y);
    barrier();
#if !EK_SOFT
    const bool again = careful != 0u;
    barrier();
    if (again) run(panel, o, row0, mine, true, y);
#endif
    for (int r = 0; r < EACH; r++) {
        const int row = row0 + mine + r;
        if (row < args.a.rows && panel * 16 + o < args.a.n)
            Floats(y_at + uint64_t((int64_t(row) * args.a.ldy + int64_t(panel * 16 + o)) * 4l)).at[0] = y[r];
    }
}
