// Groups of activations of a quantised row (ops/linear/linear.h), by a whole workgroup: begin_groups, see_value for
// every element, write_code for every element, write_groups, with a barrier between each. There is room for GROUPS of
// them. Maxima and sums are of integers, so their order is free. Each thread divides for itself: that is sooner than to
// wait for a thread that does.
shared uint group_top[GROUPS]; // bits of the largest magnitude
shared int group_h[GROUPS], group_q[GROUPS];
#include "codes.glsl"

void begin_groups()
{
    for (uint i = gl_LocalInvocationIndex; i < GROUPS; i += gl_WorkGroupSize.x)
        group_top[i] = 0u, group_h[i] = group_q[i] = 0;
}

void see_value(int g, float v)
{
    atomicMax(group_top[g], u_(v) & 0x7fffffffu);
}

float inverse_of(int g)
{
    return inverse_of_top(group_top[g]);
}

// Element `at` of the row.
void write_code(acts to, int64_t row, int at, int g, float v)
{
    const int q = code_of_value(v, inverse_of(g)), high = high_of(q);
    const uint64_t record = to.q + uint64_t(row * to.ldq);
    Bytes(record).at[at] = uint8_t(high & 255);
    Bytes(record + uint64_t(to.low)).at[at] = uint8_t(q - 256 * high & 255);
    atomicAdd(group_h[g], high);
    atomicAdd(group_q[g], q);
}

// Writes groups [0, n), whose numbers in the row are first + g.
void write_groups(acts to, int64_t row, int first, int n)
{
    for (int g = int(gl_LocalInvocationIndex); g < n; g += int(gl_WorkGroupSize.x))
        write_group(to, row, first + g, group_top[g], group_h[g], group_q[g]);
}
