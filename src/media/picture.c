#include "media/picture.h"

#include <math.h>

#include "base/encoding.h"
#include "base/hash/hash.h"

/* --- size and number of soft tokens --- */

bool ek_budget_known(int budget)
{
    return budget == 70 || budget == 140 || budget == 280 || budget == 560 || budget == 1120;
}

static int least(double a, int b)
{
    return a < b ? (int)a : b;
}

ek_err ek_image_fit_budget(ek_image_fit *out, int width, int height, int budget, ek_patching patching)
{
    if (!patching.side && !patching.pool) patching = (ek_patching){16, 3};
    if (!ek_budget_known(budget))
        return ek_fail(EK_EINVAL, "a picture of %d tokens; 70, 140, 280, 560 or 1120 are possible", budget);
    if (patching.side < 1 || patching.pool < 1 || (int64_t)patching.side * patching.pool > EK_MAX_CELL)
        return ek_fail(EK_EINVAL, "%d x %d patches of %d pixels in a token; at most %d pixels on a side are possible",
                       patching.pool, patching.pool, patching.side, EK_MAX_CELL);
    const int cell = patching.side * patching.pool;
    double w = width, h = height,
           target = (double)budget * (patching.pool * patching.pool) * (patching.side * patching.side);
    double factor = sqrt(target / (h * w));
    int th = (int)(floor(factor * h / cell) * cell), tw = (int)(floor(factor * w / cell) * cell);
    if (th == 0) {
        th = cell;
        tw = least(floor(w / h) * cell, budget * cell);
    } else if (tw == 0) {
        tw = cell;
        th = least(floor(h / w) * cell, budget * cell);
    }
    *out = (ek_image_fit){.width = tw, .height = th, .tokens = th / cell * (tw / cell), .patching = patching};
    EK_ASSERT(out->tokens >= 1 && out->tokens <= budget);
    return EK_OK;
}

/* --- pixels and patches --- */

ek_err ek_picture_probe(ek_picture_cost *out, const void *bytes, size_t n, const ek_picture_opts *o)
{
    if (o->known) out->image = *o->known;
    else EK_TRY(ek_image_probe(&out->image, bytes, n));
    EK_TRY(ek_image_fit_budget(&out->fit, out->image.width, out->image.height, o->budget, o->patching));
    const ek_image_info *i = &out->image;
    const bool on_side = i->orientation >= 5;
    out->memory = i->held + ek_resizing_memory(on_side ? i->height : i->width, on_side ? i->width : i->height,
                                               i->orientation, out->fit.width, out->fit.height);
    return EK_OK;
}

static void digest(ek_picture *p)
{
    ek_sha256_state s;
    char hex[65];
    uint8_t head[] = {'i',
                      'm',
                      (uint8_t)p->fit.width,
                      (uint8_t)(p->fit.width >> 8),
                      (uint8_t)p->fit.height,
                      (uint8_t)(p->fit.height >> 8)};
    ek_sha256_init(&s);
    ek_sha256_add(&s, head, sizeof head);
    ek_sha256_add(&s, p->image.rgb, ek_image_bytes(&p->image));
    ek_sha256_end(&s, hex);
    for (int i = 0; i < 32; i++) p->digest[i] = (uint8_t)ek_hex_byte(hex + 2 * i, 2);
}

ek_err ek_picture_make(ek_picture *out, const ek_image *image, const ek_picture_opts *o)
{
    *out = (ek_picture){0};
    EK_TRY(ek_image_fit_budget(&out->fit, image->width, image->height, o->budget, o->patching));
    EK_TRY(ek_image_resize(&out->image, image, out->fit.width, out->fit.height, o->resizer));
    digest(out);
    return EK_OK;
}

ek_err ek_picture_read(ek_picture *out, const void *bytes, size_t n, const ek_picture_opts *o)
{
    ek_picture_cost cost;
    *out = (ek_picture){0};
    EK_TRY(ek_picture_probe(&cost, bytes, n, o)); /* a wrong budget is found before decoding */
    out->fit = cost.fit;
    EK_TRY(ek_image_decode_resized(&out->image, bytes, n, &cost.image, o->alpha, cost.fit.width, cost.fit.height,
                                   o->resizer));
    digest(out);
    return EK_OK;
}

void ek_picture_free(ek_picture *p)
{
    ek_image_free(&p->image);
    *p = (ek_picture){0};
}

int ek_patch_side(const ek_image_fit *fit, ek_patch_kind kind)
{
    return kind == EK_PATCH_TOWER ? fit->patching.side : fit->patching.side * fit->patching.pool;
}

int ek_patch_floats(const ek_image_fit *fit, ek_patch_kind kind)
{
    return 3 * ek_patch_side(fit, kind) * ek_patch_side(fit, kind);
}

int ek_patch_count(const ek_image_fit *fit, ek_patch_kind kind)
{
    return fit->width / ek_patch_side(fit, kind) * (fit->height / ek_patch_side(fit, kind));
}

void ek_patch_values(float of[256], ek_patch_kind kind)
{
    for (int i = 0; i < 256; i++) {
        of[i] = (float)i * (float)(1.0 / 255.0);
        if (kind == EK_PATCH_TOWER) of[i] = 2.0f * (of[i] - 0.5f);
    }
}

void ek_picture_patches(float *values, int32_t *positions, const ek_picture *p, ek_patch_kind kind, int first, int n)
{
    int side = ek_patch_side(&p->fit, kind), across = p->fit.width / side;
    size_t row = 3 * (size_t)side, stride = 3 * (size_t)p->fit.width;
    float of[256];
    ek_patch_values(of, kind);
    EK_ASSERT(first >= 0 && n >= 0 && n <= ek_patch_count(&p->fit, kind) - first);
    for (int i = first; i < first + n; i++) {
        int x = i % across, y = i / across;
        if (positions) positions[0] = x, positions[1] = y, positions += 2;
        if (!values) continue;
        const uint8_t *px = p->image.rgb + (size_t)y * (size_t)side * stride + (size_t)x * row;
        for (int r = 0; r < side; r++, px += stride)
            for (size_t c = 0; c < row; c++) *values++ = of[px[c]];
    }
}
