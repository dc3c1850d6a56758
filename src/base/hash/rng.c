#include "base/hash/rng.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/linux.h"

void ek_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

uint64_t ek_fnv1a64(const char *s)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001B3u;
    return h;
}

uint64_t ek_hash64(uint64_t seed, const void *data, uint64_t n)
{
    const uint8_t *p = data;
    uint64_t h = ek_mix64(seed ^ n);
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = ek_mix64(h ^ w);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, n);
    return ek_mix64(h ^ tail);
}

bool ek_random(void *out, size_t n)
{
    static atomic_uint_fast64_t calls;
    uint8_t *bytes = out;
    size_t got = 0;
    for (ssize_t more; got < n && (more = getrandom(bytes + got, n - got, 0)) > 0;) got += (size_t)more;
    if (got == n) return true;
    uint64_t x = ek_mix64((uint64_t)(ek_now() * 1e9) ^ (uint64_t)getpid() << 40);
    x = ek_mix64(x ^ (uint64_t)ek_unix_time()) ^ atomic_fetch_add(&calls, 1) << 20;
    for (size_t i = got; i < n; i++) bytes[i] = (uint8_t)(ek_mix64(x + i) >> 32);
    return false;
}
