// Exact products of four signed bytes of a word with four of another, and their sum.
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int packed_dot(uint a, uint b, spirv_literal int format); // OpSDot; format 0: four bytes of 32 bits

int dot4(uint a, uint b)
{
    return packed_dot(a, b, 0);
}

// Four nibbles in two's complement, the low or the high halves of bytes, times 16.
uint low_nibbles(uint w)
{
    return w << 4 & 0xf0f0f0f0u;
}

uint high_nibbles(uint w)
{
    return w & 0xf0f0f0f0u;
}
