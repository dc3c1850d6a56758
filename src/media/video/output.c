#include "media/video/output.h"

#include <limits.h>
#include <string.h>

#include "base/encoding.h"
#include "media/limits.h"

/* --- packets --- */

/* Reads a whole number with blanks before it; *s moves past it. False if there is none or it is too large. */
static bool number(const char **s, int64_t *v)
{
    static const char unknown[] = "-9223372036854775808"; /* ffmpeg's number for an unknown time */
    const char *p = *s;
    bool negative;
    int64_t x = 0;
    while (*p == ' ') p++;
    if (!strncmp(p, unknown, sizeof unknown - 1)) {
        *v = INT64_MIN;
        *s = p + sizeof unknown - 1;
        return true;
    }
    negative = *p == '-';
    p += negative;
    if (*p < '0' || *p > '9') return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (x > (INT64_MAX - 9) / 10) return false;
        x = 10 * x + (*p - '0');
    }
    *v = negative ? -x : x;
    *s = p;
    return true;
}

static bool skip(const char **s, char c)
{
    while (**s == ' ') (*s)++;
    if (**s != c) return false;
    (*s)++;
    return true;
}

/* "#tb 0: 1/15360", "#dimensions 0: 640x480"; other notes are not needed. */
static bool read_note(ek_packets *p, const char *s)
{
    static const char clock[] = "#tb 0:", size[] = "#dimensions 0:";
    if (!strncmp(s, clock, sizeof clock - 1)) {
        s += sizeof clock - 1;
        return number(&s, &p->tick) && skip(&s, '/') && number(&s, &p->per) && p->tick > 0 && p->per > 0 &&
               p->tick <= INT32_MAX && p->per <= INT32_MAX;
    }
    if (strncmp(s, size, sizeof size - 1) != 0) return true;
    s += sizeof size - 1;
    return number(&s, &p->width) && skip(&s, 'x') && number(&s, &p->height);
}

/* Bit 2 of "F=0x…": the packet is decoded but not shown, as at the beginning of a cut video. */
static bool is_hidden(const char *s)
{
    const char *f = strstr(s, "F=0x");
    size_t n = f ? strcspn(f + 4, ", ") : 0;
    if (n == 0) return false;
    const int digit = ek_hex_digit(f[4 + n - 1]);
    return digit > 0 && digit & 4;
}

/* Reads stream, time of decoding, time of showing, duration, bytes, checksum, flags. */
static bool read_packet(ek_packets *p, const char *s)
{
    const int64_t far = INT64_C(1) << 60;
    int64_t v[5];
    for (int i = 0; i < 5; i++)
        if ((i > 0 && !skip(&s, ',')) || !number(&s, &v[i])) return false;
    const int64_t at = v[2] == INT64_MIN ? v[1] : v[2];
    const bool timed = at != INT64_MIN;
    if (v[0] != 0 || (timed && (at < -far || at > far)) || v[3] < 0 || v[3] > far) return false;
    if (is_hidden(s)) return true;
    p->n++;
    if (!timed) return true;
    if (!p->timed) p->first = p->begins = at, p->last = at + v[3];
    p->timed = true;
    if (at < p->first) p->first = at;
    if (at > p->begins) p->begins = at;
    if (at + v[3] > p->last) p->last = at + v[3];
    return true;
}

static void end_line(ek_packets *p)
{
    p->line[p->n_line] = '\0';
    if (p->n_line > 0 && !(p->line[0] == '#' ? read_note(p, p->line) : read_packet(p, p->line))) p->wrong = true;
    p->n_line = 0;
}

void ek_packets_add(ek_packets *p, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !p->wrong; i++) {
        if (bytes[i] == '\n') end_line(p);
        else if (p->n_line + 1 < sizeof p->line && bytes[i]) p->line[p->n_line++] = bytes[i];
        else if (p->line[0] != '#') p->wrong = true; /* notes may be long, and their end is not needed */
    }
}

bool ek_packets_end(ek_packets *p)
{
    if (p->n_line > 0 && !p->wrong) end_line(p);
    return !p->wrong;
}

double ek_packets_fps(const ek_packets *p)
{
    const double tick = p->per > 0 ? (double)p->tick / (double)p->per : 0;
    const double all = (double)(p->last - p->first) * tick, starts = (double)(p->begins - p->first) * tick;
    /* If no packet gives its duration, the last one gets the average duration of the others. */
    if (p->last > p->begins && all > 0) return (double)p->n / all;
    return p->n > 1 && starts > 0 ? (double)(p->n - 1) / starts : 24;
}

/* --- frames --- */

/* *c is -1 at the end. */
static ek_err next(int *c, ek_ppm_read_fn *read, void *arg)
{
    uint8_t byte;
    size_t got;
    EK_TRY(read(arg, &byte, 1, &got));
    *c = got ? byte : -1;
    return EK_OK;
}

static ek_err wrong(void)
{
    return ek_fail(EK_EPARSE, "damaged video: a frame is no picture");
}

/* Reads a number of up to five digits, and the one blank after it. */
static ek_err read_number(int *v, ek_ppm_read_fn *read, void *arg)
{
    int c, digits = 0;
    for (*v = 0;; digits++) {
        EK_TRY(next(&c, read, arg));
        if (c < '0' || c > '9') break;
        if (digits == 5) return wrong();
        *v = 10 * *v + (c - '0');
    }
    return digits > 0 && (c == ' ' || c == '\n') ? EK_OK : wrong();
}

ek_err ek_ppm_read(ek_image *out, ek_ppm_read_fn *read, void *arg)
{
    int first, c, width, height, max;
    *out = (ek_image){0};
    EK_TRY(next(&first, read, arg));
    if (first < 0) return EK_OK;
    if (first != 'P') return wrong();
    EK_TRY(next(&c, read, arg));
    if (c != '6') return wrong();
    EK_TRY(next(&c, read, arg));
    if (c != '\n') return wrong();
    EK_TRY(read_number(&width, read, arg));
    EK_TRY(read_number(&height, read, arg));
    EK_TRY(read_number(&max, read, arg));
    if (max != 255 || width < 1 || height < 1) return wrong();
    if (width > EK_IMAGE_MAX_SIDE || height > EK_IMAGE_MAX_SIDE || (int64_t)width * height > EK_IMAGE_MAX_PIXELS)
        return ek_fail(EK_ETOOLARGE, "video of %d x %d pixels, a frame has at most %d, a side %d", width, height,
                       EK_IMAGE_MAX_PIXELS, EK_IMAGE_MAX_SIDE);
    EK_TRY(ek_image_make(out, width, height));
    ek_err err = EK_OK;
    const size_t all = ek_image_bytes(out);
    for (size_t at = 0, got; !err && at < all; at += got) {
        err = read(arg, out->rgb + at, all - at, &got);
        if (!err && got == 0) err = ek_fail(EK_EPARSE, "damaged video: it ends inside a frame");
        if (err) break;
    }
    if (err) ek_image_free(out);
    return err;
}
