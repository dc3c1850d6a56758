#include "base/hash/hash.h"

/* What a nibble at the low end does to the remainder: four steps of the polynomial, bits reversed. */
static uint32_t step(uint32_t crc)
{
    for (int i = 0; i < 4; i++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    return crc;
}

uint32_t ek_crc32(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t of[256];
    for (uint32_t i = 0; i < 256; i++) of[i] = step(step(i));
    crc = ~crc;
    for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ of[(crc ^ p[i]) & 255];
    return ~crc;
}
