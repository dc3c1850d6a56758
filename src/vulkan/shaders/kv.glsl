// The layout of keys and values in a page (ops/kv/kv_codec.h, cuda/args.h).
const int PAGE = 64, SEGMENT = 256;
const int F32 = 0, F16 = 1, BF16 = 2, I16 = 3, Q8 = 4, Q4 = 5, PLANES = 6, ROTATED = 7; // kinds of formats

// ek_cuda_kv
struct kv_pages {
    uint64_t pages, base;
    int64_t stride, ld_pages, k_bytes, v_bytes;
    int k_format, v_format, head_dim, n_kv_heads;
    int k_bits, v_bits, k_shift, v_shift;
};

// The layer's block of page i of a view; 0: no page.
uint64_t page_block(kv_pages kv, int view, int i)
{
    const int number = Ints(kv.pages + uint64_t((int64_t(view) * kv.ld_pages + int64_t(i)) * 4l)).at[0];
    return number < 0 ? 0ul : kv.base + uint64_t(kv.stride) * uint64_t(uint(number));
}

// Groups of dims that share a scale.
int groups_of(int dim, int shift)
{
    return dim + (1 << shift) - 1 >> shift;
}

// Bytes of a plane of codes: of keys in a page, of values in a row.
int k_plane(int plane, int dim)
{
    return (dim * plane + 7) / 8 * PAGE;
}

int v_plane_row(int plane, int dim)
{
    return (dim + 31) / 32 * 4 * plane;
}

// Bytes of codes before the scales: for codes of less than 8 bits those of the planes, otherwise bits / 8 per element.
int k_code_bytes(int bits, int dim)
{
    if (bits >= 8) return bits / 8 * dim * PAGE;
    const int low = bits >= 4 ? 4 : 2;
    return k_plane(low, dim) + (bits > low ? k_plane(bits - low, dim) : 0);
}

int v_code_bytes(int bits, int dim)
{
    return bits >= 8 ? bits / 8 * dim * PAGE : PAGE * v_plane_row(bits, dim);
}

// The place of an integer code: number `pair` of the neighbours that an instruction multiplies, with `lanes` beside
// each other.
int rotated_place(int bits, int pair, int lanes, int lane)
{
    const int together = bits == 16 ? 2 : 4, i = pair % together;
    return (pair / together * lanes + lane) * together + (together == 4 ? i % 2 * 2 + i / 2 : i);
}
