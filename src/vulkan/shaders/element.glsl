// An element of a matrix of Form Q in the device's layout (cuda/product/layout.h). The 32 quads of 16 bytes (of a step, with
// codes in bytes) are in the order of t, then of output % 8.

// Byte and nibble of the code of output o of 16 and input k of 64 in a unit of `bits` bits.
int place_of_code(int o, int k, int bits, int a_group, out int shift)
{
    const int j = a_group == 64 ? k / 8 % 2 : k / 32;
    const int t = a_group == 64 ? k / 16 : a_group == 32 ? k % 32 / 8 : k % 16 / 4;
    const int upper = a_group == 16 ? k / 16 % 2 : k / 4 % 2, lane = t * 8 + o % 8, i = o / 8;
    shift = bits == 8 ? 0 : 4 * upper;
    return bits == 8 ? j * 512 + lane * 16 + (i + 2 * upper) * 4 + k % 4 : lane * 16 + (j * 2 + i) * 4 + k % 4;
}

int centred(uint u, int shift, int bits)
{
    return bits == 8 ? int(u << 24) >> 24 : int(u >> shift << 28) >> 28;
}
