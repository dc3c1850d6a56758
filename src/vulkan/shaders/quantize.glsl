// A group of activations as a quantised row has it (ops/linear/linear.h): the one place where shaders round them. By one
// thread: elements [0, a_group) of group g, x(i) of them, 0 where there are none.

float group_value(int i); // of the shader

void quantize_group(acts to, int64_t row, int g)
{
    uint top = 0u;
    for (int i = 0; i < to.a_group; i++) top = max(top, u_(group_value(i)) & 0x7fffffffu);
    float inverse = 0.0, sx = 0.0, sx256 = 0.0;
    if (top >= 0x7f800000u) {
        sx = sx256 = f_(0x7fc00000u);
    } else if (top >= 0x0d800000u) { // 2^-100
        sx = div_(f_(top), 32512.0);
        inverse = div_(32512.0, f_(top));
        sx256 = mul_(256.0, sx);
    }
    const uint64_t record = to.q + uint64_t(row * to.ldq), at = record + uint64_t(g * to.a_group);
    Bytes h = Bytes(at), l = Bytes(at + uint64_t(to.low));
    int sum_h = 0, sum_q = 0;
    for (int i = 0; i < to.a_group; i++) {
        const int q = inverse > 0.0 ? int(roundEven(mul_(group_value(i), inverse))) : 0, high = q + 128 >> 8;
        h.at[i] = uint8_t(high & 255), l.at[i] = uint8_t(q - 256 * high & 255);
        sum_h += high, sum_q += q;
    }
    Floats one = Floats(record + uint64_t(to.groups[0] + int64_t(g * 8)));
    Floats two = Floats(record + uint64_t(to.groups[1] + int64_t(g * 8)));
    one.at[0] = sx256, one.at[1] = float(sum_h);
    two.at[0] = sx, two.at[1] = float(sum_q);
}
