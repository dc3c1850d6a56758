// The rotation R of a head in head_at (ops/attn/attn_int.h) and its codes, by a workgroup of THREADS threads.
shared uint head_top;

// head_at = R head_at. Needs a barrier before and after.
void rotate_head(int dim)
{
    const int block = dim & -dim;
    for (int h = 1; h < block; h *= 2) {
        for (int i = int(gl_LocalInvocationID.x); i < dim / 2; i += THREADS) {
            const int at = i / h * 2 * h + i % h;
            const float x = head_at[at], y = head_at[at + h];
            head_at[at] = add_(x, y), head_at[at + h] = sub_(x, y);
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
