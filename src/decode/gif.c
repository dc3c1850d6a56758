/* GIF by giflib: the first frame on the logical screen. */
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

#include "base/alloc.h"
#include "decode/image_read.h"

typedef struct source {
    ek_media_bytes left;
} source;

static int read_bytes(GifFileType *gif, GifByteType *to, int n)
{
    source *s = gif->UserData;
    size_t take = (size_t)n < s->left.n ? (size_t)n : s->left.n;
    memcpy(to, s->left.p, take);
    s->left.p += take;
    s->left.n -= take;
    return (int)take;
}

static bool is_gif(ek_media_bytes f)
{
    return f.n >= 6 && (memcmp(f.p, "GIF87a", 6) == 0 || memcmp(f.p, "GIF89a", 6) == 0);
}

static ek_err damaged(int code)
{
    const char *why = GifErrorString(code);
    if (code == D_GIF_ERR_READ_FAILED || code == D_GIF_ERR_EOF_TOO_SOON) why = "it ends before its first frame does";
    return ek_image_damaged("GIF", why ? why : "its first frame cannot be read");
}

/* The position of a walk over blocks. */
typedef struct walk {
    ek_media_bytes left;
    int transparent; /* the transparent index of the next frame; -1: none */
    bool ended;      /* trailer or end of file */
} walk;

static bool take(walk *w, size_t n)
{
    if (w->left.n < n) return false;
    w->left.p += n;
    w->left.n -= n;
    return true;
}

static bool skip_blocks(walk *w)
{
    while (w->left.n > 0) {
        size_t n = w->left.p[0];
        if (!take(w, 1 + n)) return false;
        if (n == 0) return true;
    }
    return false;
}

/* Goes to the next frame's descriptor. left then begins with it. */
static bool next_frame(walk *w)
{
    w->transparent = -1;
    while (w->left.n > 0) {
        if (w->left.p[0] == 0x2C) return w->left.n >= 10;
        if (w->left.p[0] != 0x21 || w->left.n < 2) return false;
        const uint8_t *p = w->left.p;
        if (p[1] == 0xF9 && w->left.n >= 8 && p[2] >= 4) w->transparent = p[3] & 1 ? p[6] : -1;
        if (!take(w, 2) || !skip_blocks(w)) return false;
    }
    return false;
}

static bool start(walk *w, ek_media_bytes f)
{
    *w = (walk){.left = f, .transparent = -1};
    if (f.n < 13) return false;
    return take(w, 13 + (f.p[10] & 0x80 ? (size_t)3 << ((f.p[10] & 7) + 1) : 0));
}

/* A frame that reaches beyond the screen enlarges the picture. */
static ek_err header(ek_image_header *h, ek_media_bytes f)
{
    h->format = "GIF";
    walk w;
    if (!start(&w, f) || !next_frame(&w)) return ek_image_damaged(h->format, "it ends before its first frame");
    const uint8_t *p = w.left.p;
    int64_t right = (int64_t)ek_le16(p + 1) + ek_le16(p + 5), below = (int64_t)ek_le16(p + 3) + ek_le16(p + 7);
    h->width = ek_le16(f.p + 6);
    h->height = ek_le16(f.p + 8);
    if (right > h->width) h->width = right;
    if (below > h->height) h->height = below;
    if (ek_le16(p + 5) == 0 || ek_le16(p + 7) == 0) return ek_image_damaged(h->format, "its first frame is empty");
    h->memory = 1;
    h->held = p[9] & 0x40 ? 3 : 0; /* interlaced rows come in four passes */
    if (take(&w, 10 + (p[9] & 0x80 ? (size_t)3 << ((p[9] & 7) + 1) : 0)) && take(&w, 1) && skip_blocks(&w))
        h->animated = next_frame(&w);
    return EK_OK;
}

/* Colours by index. Without a palette the index is a grey value. Indices after a palette's end are black. */
static void colours(uint8_t rgb[256][3], const ColorMapObject *map)
{
    memset(rgb, 0, 256 * 3);
    for (int i = 0; i < 256; i++) {
        if (!map) rgb[i][0] = rgb[i][1] = rgb[i][2] = (uint8_t)i;
        else if (i < map->ColorCount)
            rgb[i][0] = map->Colors[i].Red, rgb[i][1] = map->Colors[i].Green, rgb[i][2] = map->Colors[i].Blue;
    }
}

/* The data from which rows are made. */
typedef struct rows {
    GifFileType *gif;
    uint8_t rgb[256][3];
    uint8_t *line;          /* indices of one row of the frame */
    uint8_t *empty, *drawn; /* rows of the screen: empty: without the frame; drawn: with the latest row of the frame */
} rows;

static ek_err read_row(rows *r)
{
    const GifImageDesc *frame = &r->gif->Image;
    if (DGifGetLine(r->gif, r->line, frame->Width) == GIF_ERROR) return damaged(r->gif->Error);
    for (int x = 0; x < frame->Width; x++) memcpy(r->drawn + 3 * (frame->Left + x), r->rgb[r->line[x]], 3);
    return EK_OK;
}

static ek_err read_in_order(rows *r, ek_image_sink *to)
{
    const GifImageDesc *frame = &r->gif->Image;
    for (int y = 0; y < to->height; y++) {
        const bool in = y >= frame->Top && y < frame->Top + frame->Height;
        if (in) EK_TRY(read_row(r));
        ek_sink_row(to, y, in ? r->drawn : r->empty);
    }
    return EK_OK;
}

static ek_err read_interlaced(rows *r, ek_image_sink *to)
{
    static const int first[] = {0, 4, 2, 1}, apart[] = {8, 8, 4, 2};
    const GifImageDesc *frame = &r->gif->Image;
    const size_t n = 3 * (size_t)to->width;
    uint8_t *whole = ek_sink_whole(to);
    if (!whole) return EK_ENOMEM;
    for (int y = 0; y < to->height; y++)
        if (y < frame->Top || y >= frame->Top + frame->Height) memcpy(whole + n * (size_t)y, r->empty, n);
    for (int pass = 0; pass < 4; pass++)
        for (int y = first[pass]; y < frame->Height; y += apart[pass]) {
            EK_TRY(read_row(r));
            memcpy(whole + n * (size_t)(frame->Top + y), r->drawn, n);
        }
    return EK_OK;
}

/* transparent: an index; -1: none. */
static ek_err read_rows(GifFileType *gif, ek_image_sink *to, int transparent)
{
    const GifImageDesc *frame = &gif->Image;
    const size_t n = 3 * (size_t)to->width;
    rows r = {.gif = gif, .line = ek_alloc((size_t)frame->Width), .empty = ek_alloc(n), .drawn = ek_alloc(n)};
    colours(r.rgb, frame->ColorMap ? frame->ColorMap : gif->SColorMap);
    if (to->on_white && transparent >= 0) memset(r.rgb[transparent], 255, 3);
    for (int x = 0; x < to->width; x++) memcpy(r.empty + 3 * x, r.rgb[transparent < 0 ? 0 : transparent], 3);
    memcpy(r.drawn, r.empty, n);
    ek_err err = frame->Interlace ? read_interlaced(&r, to) : read_in_order(&r, to);
    free(r.line);
    free(r.empty);
    free(r.drawn);
    return err;
}

static ek_err find_frame(GifFileType *gif)
{
    for (;;) {
        GifRecordType type;
        if (DGifGetRecordType(gif, &type) == GIF_ERROR) return damaged(gif->Error);
        if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_ERROR ? damaged(gif->Error) : EK_OK;
        if (type != EXTENSION_RECORD_TYPE) return ek_image_damaged("GIF", "it ends before its first frame");
        int code;
        GifByteType *block;
        if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return damaged(gif->Error);
        while (block)
            if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return damaged(gif->Error);
    }
}

static ek_err decode(ek_image_sink *to, ek_media_bytes f)
{
    walk w;
    int transparent = start(&w, f) && next_frame(&w) ? w.transparent : -1, code = 0;
    source s = {f};
    GifFileType *gif = DGifOpen(&s, read_bytes, &code);
    if (!gif) return damaged(code);
    ek_err err = find_frame(gif);
    const GifImageDesc *frame = &gif->Image;
    if (!err && (frame->Left < 0 || frame->Top < 0 || frame->Width < 1 || frame->Height < 1 ||
                 frame->Width > to->width - frame->Left || frame->Height > to->height - frame->Top))
        err = ek_image_damaged("GIF", "its first frame lies outside");
    if (!err) err = read_rows(gif, to, transparent);
    DGifCloseFile(gif, &code);
    return err;
}

const ek_image_reader ek_gif_reader = {is_gif, header, decode};
