// A row in registers (row.glsl), quantised by the whole workgroup in groups of 32 or 64.
const int GROUPS = PARTS * PART / 32;
#include "group_codes.glsl"

// Zeros behind the row.
vec4 within(vec4 x, int at, int n)
{
    return vec4(at < n ? x.x : 0.0, at + 1 < n ? x.y : 0.0, at + 2 < n ? x.z : 0.0, at + 3 < n ? x.w : 0.0);
}

// A thread's four neighbours lie in one group. A barrier lies behind begin_groups.
void quantize_row(acts to, row_parts v, int n)
{
    const int group = to.a_group, groups = (n + group - 1) / group, end = groups * group;
    const int64_t row = int64_t(ROW);
    EACH_PART {
        v.p[k] = within(v.p[k], first_of(k), n);
        if (first_of(k) < end) see_four(first_of(k) / group, v.p[k]);
    }
    barrier();
    EACH_PART
        if (first_of(k) < end) write_four(to, row, first_of(k), first_of(k) / group, v.p[k]);
    barrier();
    write_groups(to, row, 0, groups);
}
