// Codes of activations in groups (ops/linear/linear.h), by what is known of a group: the bits of its largest magnitude.
bool has_codes(uint top)
{
    return top >= 0x0d800000u && top < 0x7f800000u; // 2^-100
}

// 32512 over the largest magnitude of a group; 0: all codes are 0.
float inverse_of_top(uint top)
{
    return has_codes(top) ? normal_quotient(32512.0, f_(top)) : 0.0;
}

int code_of_value(float v, float inverse)
{
    return inverse > 0.0 ? int(roundEven(mul_(v, inverse))) : 0;
}

int high_of(int q)
{
    return q + 128 >> 8;
}

uint word_of(ivec4 bytes)
{
    return uint(bytes.x & 255) | uint(bytes.y & 255) << 8 | uint(bytes.z & 255) << 16 | uint(bytes.w & 255) << 24;
}

uint top_of(vec4 v)
{
    return max(max(u_(v.x) & 0x7fffffffu, u_(v.y) & 0x7fffffffu), max(u_(v.z) & 0x7fffffffu, u_(v.w) & 0x7fffffffu));
}

// Codes of four neighbours from element `at` on, a multiple of 4; returns sums of the high limbs and of the codes.
ivec2 write_four(acts to, int64_t row, int at, uint top, vec4 v)
{
    const float by = inverse_of_top(top);
    const ivec4 q = ivec4(code_of_value(v.x, by), code_of_value(v.y, by), code_of_value(v.z, by), code_of_value(v.w, by));
    const ivec4 high = q + 128 >> 8;
    const uint64_t record = to.q + uint64_t(row * to.ldq);
    Words(record).at[at / 4] = word_of(high);
    Words(record + uint64_t(to.low)).at[at / 4] = word_of(q - 256 * high);
    return ivec2(high.x + high.y + high.z + high.w, q.x + q.y + q.z + q.w);
}

// A group's scale, and sums of its codes' high limbs and of its codes.
void write_group(acts to, int64_t row, int g, uint top, int h, int q)
{
    const float sx = has_codes(top) ? normal_quotient(f_(top), 32512.0) : top >= 0x7f800000u ? f_(0x7fc00000u) : 0.0;
    const float sx256 = is_nan(sx) ? sx : mul_(256.0, sx);
    const uint64_t groups = to.q + uint64_t(row * to.ldq) + uint64_t(g) * 8ul;
    Floats one = Floats(groups + uint64_t(to.groups[0])), two = Floats(groups + uint64_t(to.groups[1]));
    one.at[0] = sx256, one.at[1] = float(h);
    two.at[0] = sx, two.at[1] = float(q);
}
