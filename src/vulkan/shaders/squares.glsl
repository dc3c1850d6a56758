// The chain of squares of a lane. Its 16 elements in SQUARES_OF, in shared memory, begin with number `from`. The
// device's fma is exact here unless a square, and so the sum so far, may be denormal: for a number below 2^-63.
float squares_from(int from)
{
    float sum = 0.0;
#if !EK_SOFT
    bool small = false;
    float x;
#define SQUARE(i)                                            \
    x = SQUARES_OF[from + i * 16];                           \
    small = small || (u_(x) << 1) - 1u < 0x3fffffffu;        \
    sum = normal_fma(x, x, sum);
    for (int end = from + 256; from < end; from += 64) {
        SQUARE(0) SQUARE(1) SQUARE(2) SQUARE(3)
    }
    if (!small) return sum;
    sum = 0.0, from -= 256;
#endif
    for (int i = 0; i < 16; i++) {
        const float y = SQUARES_OF[from + i * 16];
        sum = fma_(y, y, sum); // absent elements are 0 and change nothing
    }
    return sum;
}
