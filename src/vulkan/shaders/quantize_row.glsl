// A row in registers (row.glsl), quantised by the whole workgroup.
const int GROUPS = ROW_THREADS * EACH / 16;
#include "group_codes.glsl"

void quantize_row(acts to, float v[EACH], int n)
{
    const int group = to.a_group, groups = (n + group - 1) / group;
    const int64_t row = int64_t(ROW);
    begin_groups();
    barrier();
    UNROLL for (int i = 0; i < EACH; i++)
        if (element_of(i) < n) see_value(element_of(i) / group, v[i]);
    barrier();
    scale_groups(groups);
    barrier();
    UNROLL for (int i = 0; i < EACH; i++)
        if (element_of(i) < groups * group) write_code(to, row, element_of(i), element_of(i) / group, v[i]);
    barrier();
    write_groups(to, row, 0, groups);
    barrier();
}
