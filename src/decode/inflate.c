#include "decode/inflate.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_BITS = 15, LITERALS = 288, DISTANCES = 30, LENGTHS = 19, END = 256 };

typedef struct reader {
    const uint8_t *p;
    size_t n, at;
    uint32_t held; /* bits that were read of bytes and not used */
    int n_held;
    uint8_t *to;
    size_t max, made;
} reader;

/* n bits, the first lowest; -1: there are none left. */
static int bits(reader *r, int n)
{
    while (r->n_held < n) {
        if (r->at == r->n) return -1;
        r->held |= (uint32_t)r->p[r->at++] << r->n_held;
        r->n_held += 8;
    }
    const int v = (int)(r->held & ((1u << n) - 1));
    r->held >>= n;
    r->n_held -= n;
    return v;
}

/* A canonical code: how many symbols have each length, and the symbols in order. */
typedef struct code {
    uint16_t count[MAX_BITS + 1], symbol[LITERALS];
} code;

static bool make_code(code *c, const uint8_t *length, int n)
{
    uint16_t next[MAX_BITS + 2] = {0};
    int left = 1;
    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < n; i++) c->count[length[i]]++;
    c->count[0] = 0;
    for (int i = 1; i <= MAX_BITS; i++) {
        left = 2 * left - c->count[i];
        if (left < 0) return false; /* more symbols than a code has room for */
        next[i + 1] = (uint16_t)(next[i] + c->count[i]);
    }
    for (int i = 0; i < n; i++)
        if (length[i]) c->symbol[next[length[i]]++] = (uint16_t)i;
    return true;
}

static int symbol(reader *r, const code *c)
{
    int value = 0, first = 0, index = 0;
    for (int i = 1; i <= MAX_BITS; i++) {
        const int bit = bits(r, 1);
        if (bit < 0) return -1;
        value |= bit;
        if (value - first < c->count[i]) return c->symbol[index + value - first];
        index += c->count[i];
        first = (first + c->count[i]) << 1;
        value <<= 1;
    }
    return -1;
}

static bool copy(reader *r, size_t distance, size_t length)
{
    if (distance > r->made) return false;
    for (; length > 0 && r->made < r->max; length--, r->made++) r->to[r->made] = r->to[r->made - distance];
    return length == 0;
}

static bool read_coded(reader *r, const code *literals, const code *distances)
{
    static const uint16_t base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                    31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t more[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    for (;;) {
        int s = symbol(r, literals);
        if (s < 0 || s == END) return s == END;
        if (s < END) {
            if (r->made == r->max) return false;
            r->to[r->made++] = (uint8_t)s;
            continue;
        }
        s -= END + 1;
        if (s >= (int)(sizeof more)) return false;
        const int extra = bits(r, more[s]), d = symbol(r, distances);
        if (extra < 0 || d < 0 || d >= DISTANCES) return false;
        const int n_far = d < 4 ? 0 : d / 2 - 1, far = bits(r, n_far);
        const size_t from = d < 4 ? (size_t)d + 1 : ((size_t)(2 + d % 2) << n_far) + 1;
        if (far < 0 || !copy(r, from + (size_t)far, (size_t)base[s] + (size_t)extra)) return false;
    }
}

static bool read_codes(reader *r, code *literals, code *distances)
{
    static const uint8_t order[LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t length[LITERALS + 32] = {0};
    const int n_literals = bits(r, 5) + 257, n_distances = bits(r, 5) + 1, n_lengths = bits(r, 4) + 4;
    if (n_literals < 257 || n_distances < 1 || n_lengths < 4 || n_literals > 286) return false;
    for (int i = 0; i < n_lengths; i++) {
        const int v = bits(r, 3);
        if (v < 0) return false;
        length[order[i]] = (uint8_t)v;
    }
    if (!make_code(literals, length, LENGTHS)) return false;
    memset(length, 0, sizeof length);
    for (int i = 0; i < n_literals + n_distances;) {
        const int s = symbol(r, literals);
        if (s < 0) return false;
        if (s < 16) {
            length[i++] = (uint8_t)s;
            continue;
        }
        const int again = bits(r, s == 16 ? 2 : s == 17 ? 3 : 7);
        int n = again < 0 ? -1 : again + (s == 18 ? 11 : 3);
        if (n < 0 || (s == 16 && i == 0) || i + n > n_literals + n_distances) return false;
        for (const uint8_t v = s == 16 ? length[i - 1] : 0; n > 0; n--) length[i++] = v;
    }
    return make_code(literals, length, n_literals) && make_code(distances, length + n_literals, n_distances);
}

static bool read_stored(reader *r)
{
    r->held = 0, r->n_held = 0;
    if (r->n - r->at < 4) return false;
    size_t n = (size_t)r->p[r->at] | (size_t)r->p[r->at + 1] << 8;
    r->at += 4;
    for (; n > 0 && r->at < r->n && r->made < r->max; n--) r->to[r->made++] = r->p[r->at++];
    return n == 0;
}

static void fixed_codes(code *literals, code *distances)
{
    uint8_t length[LITERALS];
    for (int i = 0; i < LITERALS; i++) length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_code(literals, length, LITERALS);
    memset(length, 5, DISTANCES);
    make_code(distances, length, DISTANCES);
}

size_t ek_inflate(uint8_t *to, size_t max, const uint8_t *from, size_t n)
{
    reader r = {.p = from, .n = n, .at = 2, .to = to, .max = max};
    code literals, distances;
    if (n < 2 || (from[0] & 15) != 8 || (from[1] & 32)) return 0;
    for (int last = 0; last == 0;) {
        last = bits(&r, 1);
        const int kind = last < 0 ? -1 : bits(&r, 2);
        if (kind == 1) fixed_codes(&literals, &distances);
        if (kind < 0 || kind == 3 || (kind == 2 && !read_codes(&r, &literals, &distances))) break;
        if (!(kind == 0 ? read_stored(&r) : read_coded(&r, &literals, &distances))) break;
    }
    return r.made;
}
