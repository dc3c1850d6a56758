// A row in registers (row.glsl), quantised by the whole workgroup in groups of 16, 32 or 64. Four neighbours of a thread
// lie in one group, and 4, 8 or 16 threads have a group.
#include "codes.glsl"
shared uvec4 top_at[int(gl_WorkGroupSize.x) / 4];  // of a thread's four
shared ivec4 code_sum[int(gl_WorkGroupSize.x) / 4]; // their sums of high limbs times 65,536 and of low limbs

// Zeros behind the row.
vec4 within(vec4 x, int at, int n)
{
    return vec4(at < n ? x.x : 0.0, at + 1 < n ? x.y : 0.0, at + 2 < n ? x.z : 0.0, at + 3 < n ? x.w : 0.0);
}

uint largest(uvec4 a)
{
    return max(max(a.x, a.y), max(a.z, a.w));
}

// The thread's four of a part.
void quantize_part(acts to, int part, vec4 v, int n)
{
    const int group = to.a_group, end = (n + group - 1) / group * group, thread = int(gl_LocalInvocationIndex);
    const int in_group = group / 4, head = thread & -in_group, at = first_of(part);
    const int64_t row = int64_t(ROW);
    const vec4 x = within(v, at, n);
    top_at[thread / 4][thread % 4] = top_of(x);
    barrier();
    uvec4 tops = top_at[head / 4];
    if (in_group > 4) tops = max(tops, top_at[head / 4 + 1]);
    if (in_group > 8) tops = max(tops, max(top_at[head / 4 + 2], top_at[head / 4 + 3]));
    const uint top = largest(tops);
    ivec2 sums = ivec2(0);
    if (at < end) sums = write_four(to, row, at, top, x);
    code_sum[thread / 4][thread % 4] = 65536 * sums.x + (sums.y - 256 * sums.x);
    barrier();
    if (thread == head && at < end) {
        ivec4 all = code_sum[thread / 4];
        if (in_group > 4) all += code_sum[thread / 4 + 1];
        if (in_group > 8) all += code_sum[thread / 4 + 2] + code_sum[thread / 4 + 3];
        const int both = all.x + all.y + all.z + all.w, high = both + 32768 >> 16;
        write_group(to, row, at / group, top, high, 256 * high + (both - 65536 * high));
    }
}

void quantize_row(acts to, row_parts v, int n)
{
    if (HELD == 1) {
#define QUANTIZE_PART(k) quantize_part(to, k, v.p##k, n);
        EACH_PART(QUANTIZE_PART)
        return;
    }
    const int threads = int(gl_WorkGroupSize.x), thread = int(gl_LocalInvocationIndex);
#define HOLD_PART(k) part_at[k * threads + thread] = v.p##k;
    EACH_PART(HOLD_PART)
    [[dont_unroll]] for (int k = 0; k * PART < n; k++) quantize_part(to, k, part_at[k * threads + thread], n);
}
