// Groups of activations of a quantised row (ops/linear/linear.h), by a whole workgroup: begin_groups, see_value for
// every element, write_code for every element, write_groups, with a barrier between each. There is room for GROUPS of
// them. Maxima and sums are of integers, so their order is free. Each thread divides for itself: that is sooner than to
// wait for a thread that does.
shared uint group_top[GROUPS]; // bits of the largest magnitude
shared int group_h[GROUPS], group_q[GROUPS];

void begin_groups()
{
    for (uint i = gl_LocalInvocationIndex; i < GROUPS; i += gl_WorkGroupSize.x)
        group_top[i] = 0u, group_h[i] = group_q[i] = 0;
}

void see_value(int g, float v)
{
    atomicMax(group_top[g], u_(v) & 0x7fffffffu);
}

bool has_codes(uint top)
{
    return top >= 0x0d800000u && top < 0x7f800000u; // 2^-100
}

// 32512 over the largest magnitude of the workgroup's group g; 0: all codes are 0.
float inverse_of(int g)
{
    const uint top = group_top[g];
    return has_codes(top) ? div_(32512.0, f_(top)) : 0.0;
}

int code_of_value(float v, float inverse)
{
    return inverse > 0.0 ? int(roundEven(mul_(v, inverse))) : 0;
}

int high_of(int q)
{
    return q + 128 >> 8;
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

// see_value for four neighbours from a multiple of 4 on.
void see_four(int g, vec4 v)
{
    atomicMax(group_top[g], max(max(u_(v.x) & 0x7fffffffu, u_(v.y) & 0x7fffffffu),
                                max(u_(v.z) & 0x7fffffffu, u_(v.w) & 0x7fffffffu)));
}

uint word_of(ivec4 bytes)
{
    return uint(bytes.x & 255) | uint(bytes.y & 255) << 8 | uint(bytes.z & 255) << 16 | uint(bytes.w & 255) << 24;
}

void write_four(acts to, int64_t row, int at, int g, vec4 v)
{
    const float by = inverse_of(g);
    const ivec4 q = ivec4(code_of_value(v.x, by), code_of_value(v.y, by), code_of_value(v.z, by), code_of_value(v.w, by));
    const ivec4 high = q + 128 >> 8;
    const uint64_t record = to.q + uint64_t(row * to.ldq);
    Words(record).at[at / 4] = word_of(high);
    Words(record + uint64_t(to.low)).at[at / 4] = word_of(q - 256 * high);
    atomicAdd(group_h[g], high.x + high.y + high.z + high.w);
    atomicAdd(group_q[g], q.x + q.y + q.z + q.w);
}

// Writes groups [0, n), whose numbers in the row are first + g.
void write_groups(acts to, int64_t row, int first, int n)
{
    for (int g = int(gl_LocalInvocationIndex); g < n; g += int(gl_WorkGroupSize.x)) {
        const uint top = group_top[g];
        const float sx = has_codes(top) ? div_(f_(top), 32512.0) : top >= 0x7f800000u ? f_(0x7fc00000u) : 0.0;
        const float sx256 = is_nan(sx) ? sx : mul_(256.0, sx);
        const uint64_t groups = to.q + uint64_t(row * to.ldq) + uint64_t(first + g) * 8ul;
        Floats one = Floats(groups + uint64_t(to.groups[0])), two = Floats(groups + uint64_t(to.groups[1]));
        one.at[0] = sx256, one.at[1] = float(group_h[g]);
        two.at[0] = sx, two.at[1] = float(group_q[g]);
    }
}
