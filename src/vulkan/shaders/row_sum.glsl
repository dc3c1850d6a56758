// The sum of squares of a row (ops/rows/rows.h) by a workgroup of THREADS: chains of 16 lanes over blocks of 256
// elements, the blocks' sums by T. All threads call it; row_value(i) is the row's element i.

const int MAX_LEAVES = 1024; // rows of up to 262,144 elements
shared float lane_sum[THREADS], leaf_sum[MAX_LEAVES];

float row_value(int i); // defined by the shader

float sum_of_squares(int n)
{
    const int thread = int(gl_LocalInvocationID.x), lane = thread % 16, blocks = (n + 255) / 256;
    for (int first = 0; first < blocks; first += THREADS / 16) {
        const int b = first + thread / 16;
        float sum = 0.0;
        for (int at = b * 256 + lane; at < min(n, (b + 1) * 256); at += 16) sum = fma_(row_value(at), row_value(at), sum);
        lane_sum[thread] = sum;
        barrier();
        for (int apart = 8; apart > 0; apart /= 2) {
            if (lane < apart) lane_sum[thread] = add_(lane_sum[thread], lane_sum[thread + apart]);
            barrier();
        }
        if (lane == 0 && b < blocks) leaf_sum[b] = lane_sum[thread];
        barrier();
    }
    for (int apart = 1; apart < blocks; apart *= 2) { // adding neighbours level by level is T
        for (int i = thread * 2 * apart; i + apart < blocks; i += THREADS * 2 * apart)
            leaf_sum[i] = add_(leaf_sum[i], leaf_sum[i + apart]);
        barrier();
    }
    const float sum = leaf_sum[0];
    barrier();
    return sum;
}

float norm_factor(float squares, int n, float eps)
{
    return div_(1.0, sqrt_(add_(div_(squares, float(n)), eps)));
}
