// Codes in groups with binary16 scales, and biases (ops/kv/kv_store.c): a thread per group. The dims of a group have
// four classes, by their number mod 4. If the first dim of a class is NaN, the whole class does not count.

float half_held(float x)
{
    return held(x, -65504.0, 65504.0);
}

// The smallest binary16 >= x >= 0.
uint half_up(float x)
{
    const uint h = float_to_half(held(x, 0.0, 65504.0));
    return less_(half_to_float(h), x) && h < 0x7bffu ? h + 1u : h;
}

shared uint8_t head_code[MAX_HEAD + 8]; // zeros after the head's dims

int whole_code(float x, float least, float most)
{
    return int(roundEven(held(x, least, most)));
}

void symmetric_group(int first, int n, out uint scale)
{
    float top = 0.0;
    for (int d = first; d < first + n; d++)
        if (less_(top, magnitude(head_at[d]))) top = magnitude(head_at[d]);
    scale = half_up(div_(top, 127.0));
    const float s = half_to_float(scale);
    for (int d = first; d < first + n; d++)
        head_code[d] = uint8_t((less_(0.0, s) ? whole_code(div_(head_at[d], s), -127.0, 127.0) : 0) & 255);
}

void affine_group(int first, int n, int bits, out uint scale, out uint bias)
{
    float least, most;
    for (int l = 0; l < 4; l++) {
        float low = head_at[first + l], high = low;
        for (int d = first + 4 + l; d < first + n; d += 4) {
            const float x = head_at[d];
            low = less_(x, low) ? x : low, high = less_(high, x) ? x : high;
        }
        least = l == 0 || less_(low, least) ? low : least;
        most = l == 0 || less_(most, high) ? high : most;
    }
    const bool below = less_(magnitude(most), magnitude(least));
    const float codes = float((1 << bits) - 1), edge = below ? least : most;
    float s = div_(sub_(most, least), codes);
    s = s > 1e-7 ? s : 1e-7;
    s = below ? s : negated(s);
    const float steps = roundEven(div_(edge, s));
    scale = float_to_half(half_held(steps != 0.0 ? div_(edge, steps) : s));
    bias = float_to_half(half_held(steps != 0.0 ? edge : 0.0));
    const float sf = half_to_float(scale), bf = half_to_float(bias);
    for (int d = first; d < first + n; d++)
        head_code[d] = uint8_t(whole_code(div_(sub_(head_at[d], bf), sf), 0.0, codes));
}

// Bits [from, from + plane) of the codes, in their plane at `to`.
void put_plane(uint64_t to, int plane, int from, int dim, int slot, bool keys)
{
    const int bytes = keys ? (dim * plane + 7) / 8 : v_plane_row(plane, dim), mask = (1 << plane) - 1;
    const bool halves = plane == 4 && !keys; // the low nibbles hold the first 16 of 32 dims
    for (int b = int(gl_LocalInvocationID.x); b < bytes; b += THREADS) {
        const int d = halves ? b / 16 * 32 + b % 16 : b * 8 / plane;
        int byte = 0;
        for (int i = 0; i < 8 / plane; i++) {
            const int at = d + i * (halves ? 16 : 1);
            byte |= ((at < dim ? int(head_code[at]) : 0) >> from & mask) << i * plane;
        }
        Bytes(to).at[keys ? b * PAGE + slot : slot * bytes + b] = uint8_t(byte);
    }
}

// Stores one token's part at `at`, in a format of groups.
void store_groups(uint64_t at, int format, int bits, int shift, int dim, int slot, bool keys)
{
    const int thread = int(gl_LocalInvocationID.x), groups = groups_of(dim, shift);
    const uint64_t scales = at + uint64_t(keys ? k_code_bytes(bits, dim) : v_code_bytes(bits, dim));
    for (int g = thread; g < groups; g += THREADS) {
        const int first = g << shift, n = min(dim - first, 1 << shift);
        const int place = keys ? g * PAGE + slot : slot * groups + g;
        uint scale, bias = 0u;
        if (format == Q8) symmetric_group(first, n, scale);
        else affine_group(first, n, bits, scale, bias);
        Halves(scales).at[place] = uint16_t(scale);
        if (format != Q8) Halves(scales).at[groups * PAGE + place] = uint16_t(bias);
    }
    barrier();
    if (format == Q8) {
        for (int d = thread; d < dim; d += THREADS) Bytes(at).at[keys ? d * PAGE + slot : slot * dim + d] = head_code[d];
        return;
    }
    const int low = bits >= 4 ? 4 : 2;
    put_plane(at, low, 0, dim, slot, keys);
    if (bits > low)
        put_plane(at + uint64_t(keys ? k_plane(low, dim) : PAGE * v_plane_row(low, dim)), bits - low, low, dim, slot, keys);
}
