#include "engine/gap.h"

#include <limits.h>

#define AIM 0.95 /* of what a step may take: the next one may be slower */

/* The sizes of a bin: [least, least of the next one). */
static int least_of(int bin)
{
    return bin == 0 ? 1 : bin < EK_GAP_BINS ? EK_GAP_LEAST << bin : INT_MAX;
}

static int bin_of(int rows)
{
    int bin = 0;
    while (rows >= least_of(bin + 1)) bin++;
    return bin;
}

static void note_reply(ek_gap *g, double seconds)
{
    if (g->reply == 0 || seconds < g->reply) g->reply = seconds;
    else g->reply += (seconds - g->reply) / 8; /* one that was held up counts little */
}

void ek_gap_note(ek_gap *g, int rows, double seconds)
{
    if (!(seconds > 0 && seconds < 3600)) return;
    if (rows <= 0) {
        note_reply(g, seconds);
        return;
    }
    const int bin = bin_of(rows);
    const double whole = seconds / rows, over = (seconds - g->reply) / rows, each = over > whole / 8 ? over : whole / 8;
    double *const own = &g->row[bin];
    *own = *own == 0 || each > *own ? each : (*own + each) / 2;
    for (int i = 0; i < bin; i++)
        if (g->row[i] < *own) g->row[i] = *own;
    for (int i = bin + 1; i < EK_GAP_BINS; i++) /* `whole` is an upper bound per row of a larger step */
        if (g->row[i] == 0 || g->row[i] > whole) g->row[i] = whole;
}

static int rounded(int rows)
{
    int unit = 1;
    while (rows / unit >= 16) unit *= 2;
    return rows / unit * unit;
}

int ek_gap_rows(const ek_gap *g, double seconds, double spent, int max_rows)
{
    const double twice = 2 * g->reply, may = seconds * AIM > twice ? seconds * AIM : twice,
                 left = may - spent - g->reply;
    int rows = 0;
    for (int bin = EK_GAP_BINS - 1; bin >= 0 && rows == 0 && left > 0; bin--) {
        const double n = g->row[bin] > 0 ? left / g->row[bin] : 0;
        if (n < least_of(bin)) continue;
        rows = n >= least_of(bin + 1) ? least_of(bin + 1) - 1 : (int)n;
    }
    rows = rows < EK_GAP_LEAST ? EK_GAP_LEAST : rounded(rows);
    return rows < max_rows ? rows : max_rows;
}

int ek_gap_whole(int rows, int others, int tile, int max_rows)
{
    const int all = rows + others;
    if (tile <= 0 || all < tile * 3 / 4) return rows;
    const int whole = (all < tile ? tile : all - all % tile) - others;
    if (whole < EK_GAP_LEAST) return rows;
    return whole < max_rows ? whole : max_rows;
}
