/* Puts stored pixels where they are shown. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "decode/image_read.h"
#include "media/resize.h"

/* The place of the stored picture's pixel (x, y) in the shown picture, for each orientation. */
static void place(const ek_image_sink *s, int x, int y, int *to_x, int *to_y)
{
    int right = s->width - 1 - x, below = s->height - 1 - y;
    switch (s->orientation) {
    case 2: *to_x = right, *to_y = y; break;
    case 3: *to_x = right, *to_y = below; break;
    case 4: *to_x = x, *to_y = below; break;
    case 5: *to_x = y, *to_y = x; break;
    case 6: *to_x = below, *to_y = x; break;
    case 7: *to_x = below, *to_y = right; break;
    case 8: *to_x = y, *to_y = right; break;
    default: *to_x = x, *to_y = y; break;
    }
}

void ek_sink_blend(uint8_t *to, const uint8_t *rgba, int n)
{
    for (int i = 0; i < n; i++, rgba += 4) {
        const unsigned a = rgba[3];
        for (int c = 0; c < 3; c++) {
            const unsigned v = rgba[c] * a + 255 * (255 - a) + 128;
            *to++ = (uint8_t)(((v >> 8) + v) >> 8);
        }
    }
}

void ek_sink_row(ek_image_sink *s, int y, const uint8_t *rgb)
{
    int x0, y0, x1, y1;
    EK_ASSERT(y == s->next);
    s->next++;
    if (s->resizing) {
        ek_resizing_row(s->resizing, rgb);
        return;
    }
    place(s, 0, y, &x0, &y0);
    place(s, 1, y, &x1, &y1);
    ptrdiff_t stride = s->out->width, step = 3 * ((x1 - x0) + (y1 - y0) * stride);
    uint8_t *to = s->out->rgb + 3 * (x0 + y0 * stride);
    if (step == 3) {
        memcpy(to, rgb, 3 * (size_t)s->width);
        return;
    }
    for (int x = 0; x < s->width; x++, to += step, rgb += 3) to[0] = rgb[0], to[1] = rgb[1], to[2] = rgb[2];
}

uint8_t *ek_sink_whole(ek_image_sink *s)
{
    if (s->orientation <= 1 && !s->resizing) return memset(s->out->rgb, 0, ek_image_bytes(s->out));
    s->whole = ek_alloc_big(3 * (size_t)s->width * (size_t)s->height);
    return s->whole;
}

void ek_sink_done(ek_image_sink *s, bool good)
{
    if (!s->whole) return;
    for (int y = 0; good && y < s->height; y++) ek_sink_row(s, y, s->whole + 3 * (size_t)y * (size_t)s->width);
    ek_free_big(s->whole, 3 * (size_t)s->width * (size_t)s->height);
    s->whole = NULL;
}
