#include "base/hash/hash.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/encoding.h"

/* --- CRC-32 and SHA-1 --- */

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

static uint32_t rotate_left(uint32_t x, int by)
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
    for (int i = 16; i < 80; i++) w[i] = rotate_left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 80; i++) {
        uint32_t next = rotate_left(v[0], 5) + mixed(i, v[1], v[2], v[3]) + v[4] + w[i];
        v[4] = v[3], v[3] = v[2], v[2] = rotate_left(v[1], 30), v[1] = v[0], v[0] = next;
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

/* --- SHA-256 --- */

const uint32_t ek_sha256_keys[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

/* One round. The caller rotates the names of the state instead of its words. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                           \
    do {                                                                                                           \
        uint32_t t = h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) + ((e & f) ^ (~e & g)) + \
                     ek_sha256_keys[i] + w[i];                                                                     \
        d += t;                                                                                                    \
        h = t + (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));  \
    } while (0)

void ek_sha256_blocks(uint32_t s[8], const uint8_t *p, size_t n)
{
    for (; n > 0; n--, p += 64) {
        uint32_t w[64], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + (rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
                   (rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10);
        for (int i = 0; i < 64; i += 8) {
            ROUND(a, b, c, d, e, f, g, h, i);
            ROUND(h, a, b, c, d, e, f, g, i + 1);
            ROUND(g, h, a, b, c, d, e, f, i + 2);
            ROUND(f, g, h, a, b, c, d, e, i + 3);
            ROUND(e, f, g, h, a, b, c, d, i + 4);
            ROUND(d, e, f, g, h, a, b, c, i + 5);
            ROUND(c, d, e, f, g, h, a, b, i + 6);
            ROUND(b, c, d, e, f, g, h, a, i + 7);
        }
        s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
    }
}

static void take(uint32_t h[8], const uint8_t *p, size_t n)
{
    (ek_sha256_has_x86() ? ek_sha256_blocks_x86 : ek_sha256_blocks)(h, p, n);
}

void ek_sha256_init(ek_sha256_state *s)
{
    *s = (ek_sha256_state){
        .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void ek_sha256_add(ek_sha256_state *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t held = s->n % 64, room = 64 - held;
    if (n == 0) return;
    s->n += n;
    if (held + n < 64) {
        memcpy(s->rest + held, p, n);
        return;
    }
    if (held) {
        memcpy(s->rest + held, p, room);
        take(s->h, s->rest, 1);
        p += room, n -= room;
    }
    if (n >= 64) take(s->h, p, n / 64);
    memcpy(s->rest, p + n / 64 * 64, n % 64);
}

/* Makes the last blocks of a text of n bytes; rest has the bytes after the whole blocks. Returns the number of
 * blocks. */
static size_t pad(uint8_t last[128], const uint8_t *rest, uint64_t n)
{
    const size_t left = n % 64, n_last = left < 56 ? 64 : 128;
    memset(last, 0, 128);
    memcpy(last, rest, left);
    last[left] = 0x80;
    for (int i = 0; i < 8; i++) last[n_last - 1 - (size_t)i] = (uint8_t)(n * 8 >> 8 * i);
    return n_last / 64;
}

static void put(uint8_t out[32], const uint32_t h[8])
{
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(h[i / 4] >> (24 - i % 4 * 8));
}

void ek_sha256_add_u64(ek_sha256_state *s, uint64_t v)
{
    uint8_t b[8];
    ek_put_le(b, v, sizeof b);
    ek_sha256_add(s, b, sizeof b);
}

void ek_sha256_end_bytes(ek_sha256_state *s, uint8_t out[32])
{
    uint8_t last[128];
    const size_t n = pad(last, s->rest, s->n);
    take(s->h, last, n);
    put(out, s->h);
}

void ek_sha256_two(uint8_t a_out[32], uint8_t b_out[32], const void *a, const void *b, size_t n)
{
    if (!ek_sha256_has_x86()) {
        ek_sha256(a_out, a, n);
        ek_sha256(b_out, b, n);
        return;
    }
    ek_sha256_state s, t;
    uint8_t a_last[128], b_last[128];
    const size_t whole = n / 64;
    ek_sha256_init(&s), ek_sha256_init(&t);
    const size_t m = pad(a_last, (const uint8_t *)a + 64 * whole, n);
    pad(b_last, (const uint8_t *)b + 64 * whole, n);
    ek_sha256_two_blocks_x86(s.h, t.h, a, b, whole);
    ek_sha256_two_blocks_x86(s.h, t.h, a_last, b_last, m);
    put(a_out, s.h), put(b_out, t.h);
}

void ek_sha256_end(ek_sha256_state *s, char out[65])
{
    uint8_t h[32];
    ek_sha256_end_bytes(s, h);
    ek_hex(out, h, sizeof h);
}

void ek_sha256(uint8_t out[32], const void *data, size_t n)
{
    ek_sha256_state s;
    ek_sha256_init(&s);
    ek_sha256_add(&s, data, n);
    ek_sha256_end_bytes(&s, out);
}

void ek_sha256_hex(char out[65], const void *data, size_t n)
{
    uint8_t h[32];
    ek_sha256(h, data, n);
    ek_hex(out, h, sizeof h);
}
