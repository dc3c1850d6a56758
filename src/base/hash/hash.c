

#include "base/hash/hash.h"

#include <stdio.h>
#include <string.h>

/* The effect of the lowest nibble on the remainder: four steps of the polynomial, bits reversed. */
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

static uint32_t rotate(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

/* The function and the constant of a round, applied to b, c and d. */
static uint32_t mixed(int round, uint32_t b, uint32_t c, uint32_t d)
{
    switch (round / 20) {
    case 0: return ((b & c) | (~b & d)) + 0x5a827999;
    case 1: return (b ^ c ^ d) + 0x6ed9eba1;
    case 2: return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    default: return (b ^ c ^ d) + 0xca62c1d6;
    }
}

static void compress(uint32_t h[5], const uint8_t *p)
{
    uint32_t w[80], v[5];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 80; i++) {
        uint32_t next = rotate(v[0], 5) + mixed(i, v[1], v[2], v[3]) + v[4] + w[i];
        v[4] = v[3], v[3] = v[2], v[2] = rotate(v[1], 30), v[1] = v[0], v[0] = next;
    }
    for (int i = 0; i < 5; i++) h[i] += v[i];
}

void ek_sha1_init(ek_sha1_state *s)
{
    *s = (ek_sha1_state){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void ek_sha1_add(ek_sha1_state *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    while (n > 0) {
        size_t held = s->n % 64, take = n < 64 - held ? n : 64 - held;
        memcpy(s->rest + held, p, take);
        s->n += take, p += take, n -= take;
        if (held + take == 64) compress(s->h, s->rest);
    }
}

void ek_sha1_end(ek_sha1_state *s, char out[41])
{
    static const uint8_t pad[64] = {0x80};
    uint8_t bits[8];
    uint64_t n = s->n * 8;
    for (int i = 0; i < 8; i++) bits[7 - i] = (uint8_t)(n >> 8 * i);
    ek_sha1_add(s, pad, s->n % 64 < 56 ? 56 - s->n % 64 : 120 - s->n % 64);
    ek_sha1_add(s, bits, sizeof bits);
    for (int i = 0; i < 5; i++) snprintf(out + 8 * i, 9, "%08x", s->h[i]);
}
