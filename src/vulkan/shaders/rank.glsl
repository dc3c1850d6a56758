// The best of values: the largest; among equals the one with the lowest index. Computed by a workgroup of 256 threads.
// NaN never wins.
shared uint best_value[256], best_index[256];

// Integers in the order of values; 0 is below all.
uint ordered(float x)
{
    const uint u = u_(x) << 1 == 0u ? 0u : u_(x);
    return (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}

// The best of all threads' values, in the form of `ordered`; the result is in the first place. A barrier before the
// next call.
void find_best(uint value, uint index)
{
    const int thread = int(gl_LocalInvocationID.x);
    best_value[thread] = value, best_index[thread] = index;
    barrier();
    for (int apart = 128; apart > 0; apart /= 2) {
        if (thread < apart) {
            const uint v = best_value[thread + apart], i = best_index[thread + apart];
            if (v > best_value[thread] || (v == best_value[thread] && i < best_index[thread]))
                best_value[thread] = v, best_index[thread] = i;
        }
        barrier();
    }
}
