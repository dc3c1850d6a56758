// Products of four signed bytes of a word with four of another, and their sum; exact.
int byte_of(uint w, int i)
{
    return int(w << 24 - 8 * i) >> 24;
}

int dot4(uint a, uint b)
{
    return byte_of(a, 0) * byte_of(b, 0) + byte_of(a, 1) * byte_of(b, 1) + byte_of(a, 2) * byte_of(b, 2) +
           byte_of(a, 3) * byte_of(b, 3);
}

// Four nibbles in two's complement, the low or the high ones of bytes, times 16.
uint low_nibbles(uint w)
{
    return w << 4 & 0xf0f0f0f0u;
}

uint high_nibbles(uint w)
{
    return w & 0xf0f0f0f0u;
}
