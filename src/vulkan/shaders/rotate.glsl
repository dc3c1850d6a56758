// The rotation R of a head in head_at (ops/attn/attn_int.h) and its codes, by a workgroup of THREADS threads.
shared uint head_top;

// head_at = R head_at. Needs a barrier before and after. Two levels at once, for each has a barrier behind it; the first of
// an odd number alone.
void rotate_head(int dim)
{
    const int thread = int(gl_LocalInvocationID.x), levels = findMSB(dim & -dim);
    if (levels % 2 == 1) {
        for (int i = thread; i < dim / 2; i += THREADS) {
            const float x = head_at[2 * i], y = head_at[2 * i + 1];
            head_at[2 * i] = add_(x, y), head_at[2 * i + 1] = sub_(x, y);
        }
        barrier();
    }
    [[dont_unroll]] for (int level = levels % 2; level < levels; level += 2) {
        const int h = 1 << level;
        for (int i = thread; i < dim / 4; i += THREADS) {
            const int at = (i >> level << level + 2) + (i & h - 1);
            const float x = head_at[at], y = head_at[at + h], z = head_at[at + 2 * h], w = head_at[at + 3 * h];
            const float s = add_(x, y), t = sub_(x, y), u = add_(z, w), v = sub_(z, w);
            head_at[at] = add_(s, u), head_at[at + h] = add_(t, v);
            head_at[at + 2 * h] = sub_(s, u), head_at[at + 3 * h] = sub_(t, v);
        }
        barrier();
    }
}

// The same for a token or query: elements are clamped first. Leaves the largest magnitude in head_top.
void encode_head(int dim)
{
    const int thread = int(gl_LocalInvocationID.x);
    if (thread == 0) head_top = 0u;
    for (int d = thread; d < dim; d += THREADS) head_at[d] = held(head_at[d], f_(0xef800000u), f_(0x6f800000u)); // 2^96
    barrier();
    rotate_head(dim);
    for (int d = thread; d < dim; d += THREADS) atomicMax(head_top, u_(head_at[d]) & 0x7fffffffu);
    barrier();
}

// With t = head_top: returns the scale t / most, and the factor from an element to its code.
float code_scale(float most)
{
    return head_top < 0x0d800000u ? 0.0 : div_(f_(head_top), most); // 2^-100
}

float code_factor(float most)
{
    return head_top < 0x0d800000u ? 0.0 : div_(most, f_(head_top));
}

int code_of(float x, float factor, float most)
{
    return int(roundEven(held(mul_(x, factor), -most, most)));
}
