// A row of up to 8,192 elements in the registers of a workgroup of 256 threads (ops/rows/rows.h): 16 threads have a
// block of 256 elements, each a lane's chain of them.
const int ROW_THREADS = 256, EACH = 32;
shared float lane_sum[ROW_THREADS * EACH / 16];

// The thread's element i.
int element_of(int i)
{
    const int thread = int(gl_LocalInvocationIndex);
    return (i / 16 * 16 + thread / 16) * 256 + i % 16 * 16 + thread % 16;
}

float element_at(uint64_t base, int i, int n)
{
    const int at = element_of(i);
    return at < n ? Floats(base).at[at] : 0.0;
}

// 1 / root mean square
float factor_of(float v[EACH], int n, float eps)
{
    const int thread = int(gl_LocalInvocationIndex), blocks = (n + 255) / 256;
    for (int part = 0; part < EACH / 16; part++) {
        float sum = 0.0;
        for (int i = 0; i < 16; i++) {
            const float x = v[part * 16 + i];
            sum = fma_(x, x, sum); // 0 where there is no element changes nothing
        }
        lane_sum[part * ROW_THREADS + thread] = sum;
    }
    barrier();
    for (int apart = 8; apart > 0; apart /= 2) { // 8 of 16 lanes of up to 32 blocks
        if (thread < blocks * apart) {
            const int at = thread / apart * 16 + thread % apart;
            lane_sum[at] = add_(lane_sum[at], lane_sum[at + apart]);
        }
        barrier();
    }
    for (int apart = 1; apart < blocks; apart *= 2) { // neighbours, level by level, are T
        const int at = thread * 2 * apart;
        if (at + apart < blocks) lane_sum[at * 16] = add_(lane_sum[at * 16], lane_sum[(at + apart) * 16]);
        barrier();
    }
    const float f = div_(1.0, sqrt_(add_(div_(lane_sum[0], float(n)), eps)));
    barrier();
    return f;
}
