#include "vulkan/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/log.h"

enum { RESULTS = EK_VULKAN_RESULTS, TRIPLES = 1 << 15 };
static const char *const operation[RESULTS] = {"fma", "division", "square root", "product", "sum"};

static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Triples of three kinds: one rounding too many shows in the result, results are denormal, and random bits except
 * NaN. */
static void fill(float *x)
{
    static const uint32_t edge[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x807fffff,
                                    0x00800001, 0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, 0x7f7fffff, 0x7f800000,
                                    0x34000000, 0x33800000, 0x20000000, 0x1fffffff, 0x5f000000, 0x40490fdb};
    enum { EDGES = sizeof edge / sizeof *edge, ALL = EDGES * EDGES * EDGES };
    for (int i = 0; i < TRIPLES; i++) {
        uint32_t u[3];
        for (int j = 0; j < 3; j++) u[j] = (uint32_t)ek_mix64((uint64_t)(3 * i + j));
        if (i < ALL) {
            u[0] = edge[i / EDGES / EDGES], u[1] = edge[i / EDGES % EDGES], u[2] = edge[i % EDGES];
        } else if (i % 4 < 2) { /* c cancels the product except for the part that a rounding would lose */
            const float a = of_bits((u[0] & 0x007fffff) | 0x3f800000), b = of_bits((u[1] & 0x007fffff) | 0x3f800000);
            const float c = -(a * b);
            memcpy(u, &a, 4), memcpy(u + 1, &b, 4), memcpy(u + 2, &c, 4);
        } else if (i % 4 == 2) { /* products near the smallest normal number */
            u[0] = (u[0] & 0x807fffff) | (20u + u[0] % 24) << 23;
            u[1] = (u[1] & 0x807fffff) | (100u + u[1] % 12) << 23;
            u[2] = (u[2] & 0x807fffff) | (u[2] % 4) << 23;
        }
        for (int j = 0; j < 3; j++) {
            if ((u[j] & 0x7fffffff) > 0x7f800000) u[j] &= 0xff7fffff;
            x[3 * i + j] = of_bits(u[j]);
        }
    }
}

static void want(float out[RESULTS], const float *x)
{
    out[0] = fmaf(x[0], x[1], x[2]), out[1] = x[0] / x[1], out[2] = sqrtf(x[0]), out[3] = x[0] * x[1],
    out[4] = x[0] + x[2];
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Sets a bit of *wrong for each operation whose bits differ. */
static void compare(const float *x, const float *y, unsigned *wrong)
{
    *wrong = 0;
    for (int i = 0; i < TRIPLES; i++) {
        float w[RESULTS];
        want(w, x + 3 * i);
        for (int r = 0; r < RESULTS; r++) *wrong |= (unsigned)!same(w[r], y[RESULTS * i + r]) << r;
    }
}

static VkResult run(ek_vulkan *v, CUstream s, VkPipeline p, unsigned *wrong)
{
    struct CUfunc_st f = {.name = "ek_evidence", .of = v, .pipeline = p, .args = sizeof(ek_vulkan_evidence_args)};
    ek_vulkan_block host;
    const size_t in = sizeof(float) * 3 * TRIPLES, out = sizeof(float) * RESULTS * TRIPLES;
    VkResult r = ek_vulkan_take(v, &host, in + out, EK_VULKAN_HOST);
    if (r != VK_SUCCESS) return r;
    float *const x = (float *)(void *)host.map;
    fill(x);
    const ek_vulkan_evidence_args args = {host.at, host.at + in, TRIPLES};
    const uint32_t grid[] = {TRIPLES / 256, 1, 1};
    r = ek_vulkan_launch(s, &f, grid, &args);
    if (r == VK_SUCCESS) r = ek_vulkan_flush(s);
    if (r == VK_SUCCESS) r = ek_vulkan_wait(s, s->value);
    if (r == VK_SUCCESS) compare(x, x + in / sizeof(float), wrong);
    ek_vulkan_give(v, &host);
    return r;
}

static VkResult try(ek_vulkan *v, CUstream s, bool soft, unsigned *wrong)
{
    VkPipeline p = VK_NULL_HANDLE;
    VkResult r = ek_vulkan_pipeline(v, &p, "evidence", soft, (ek_vulkan_size){0});
    if (r == VK_SUCCESS) r = run(v, s, p, wrong);
    if (p) v->DestroyPipeline(v->device, p, NULL);
    return r;
}

static void say(char *out, size_t room, unsigned wrong)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < RESULTS; i++)
        if (wrong >> i & 1 && n < room) n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", operation[i]);
}

VkResult ek_vulkan_choose_arithmetic(ek_vulkan *v)
{
    struct CUstream_st s = {.of = v};
    char wrong[128];
    unsigned hard = 0, soft = 0;
    VkResult r = try(v, &s, false, &hard);
    if (r == VK_SUCCESS && hard) r = try(v, &s, true, &soft);
    if (r != VK_SUCCESS || !hard) return r;
    v->soft = true;
    say(wrong, sizeof wrong, soft ? soft : hard);
    ek_log(soft ? EK_LOG_ERROR : EK_LOG_DEBUG, "vulkan:%d: %s in %s", v->ordinal,
           soft ? "results differ from the definition" : "fma by integers, the device's own differs", wrong);
    return soft ? VK_ERROR_FEATURE_NOT_PRESENT : VK_SUCCESS;
}
