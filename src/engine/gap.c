#include "engine/gap.h"

#include <limits.h>
#include <stddef.h>

#define AIM          0.95        /* fraction of the allowed time that is used: the next step may be slower */
#define AIM_MEASURED 0.98        /* the same for a size that was measured */
#define UNEVEN       1.25        /* a row of a larger step may take this many times as long: a tile begins */
#define FORGET       (1.0 / 512) /* each step subtracts this part of a larger size's time: it is tried again */

/* The smallest size of a bin; the bin ends before the next bin's smallest. */
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

/* The index of a size among half octaves, which begin at 1, 24, 32, 48, 64, 96 and so on. */
static int point_of(int rows)
{
    int i = 0;
    while (i + 1 < EK_GAP_POINTS && rows >= ((i + 1) % 2 ? 24 << i / 2 : 16 << (i + 1) / 2)) i++;
    return i;
}

/* Records a measured step. If the step before had the same size, the change of its time is applied to all sizes,
 * because contexts become longer. A size that was not tried for long changes alone. Sizes that contradict the new time
 * follow it: fewer rows take no longer, and more rows take not much longer per row. */
static void note_point(ek_gap *g, int rows, double seconds)
{
    ek_gap_point *const own = &g->point[point_of(rows)];
    if (own->rows > 0) {
        const double by = seconds / (own->seconds * rows / own->rows), all = by > 1 ? by : (1 + by) / 2;
        for (ek_gap_point *p = g->point; p < g->point + EK_GAP_POINTS; p++)
            if (p == own || g->latest == own - g->point) p->seconds *= all;
        seconds = own->seconds * rows / own->rows;
    }
    g->latest = (int)(own - g->point);
    *own = (ek_gap_point){rows, seconds};
    for (ek_gap_point *p = g->point; p < g->point + EK_GAP_POINTS; p++) {
        if (p->rows == 0 || p == own) continue;
        const double even = seconds * p->rows / rows;
        if (p->rows > rows) {
            p->seconds -= p->seconds * FORGET;
            if (p->seconds > even * UNEVEN || p->seconds < seconds) p->rows = 0;
        } else if (p->seconds > seconds) p->seconds = seconds;
        else if (p->seconds < even / UNEVEN) p->seconds = even / UNEVEN;
    }
}

static int rounded(int rows)
{
    int unit = 1;
    while (rows / unit >= 16) unit *= 2;
    return rows / unit * unit;
}

/* The largest measured size that adds at most `left` seconds; NULL: none. */
static const ek_gap_point *largest_within(const ek_gap *g, double left)
{
    for (int i = EK_GAP_POINTS - 1; i >= 0; i--)
        if (g->point[i].rows > 0 && g->point[i].seconds <= left) return &g->point[i];
    return NULL;
}

/* Seconds of one more row than p has, by the line through p and a smaller size; at least half of p's seconds per row.
 */
static double slope_behind(const ek_gap *g, const ek_gap_point *p)
{
    const double whole = p->seconds / p->rows;
    double slope = whole;
    for (const ek_gap_point *q = g->point; q < p; q++) {
        if (q->rows == 0 || q->rows > p->rows * 3 / 4) continue;
        const double s = (p->seconds - q->seconds) / (p->rows - q->rows);
        if (s < slope) slope = s;
    }
    return slope > whole / 2 ? slope : whole / 2;
}

/* Rows that add at most `left` seconds. Between two measured sizes a line through them gives the time. Beyond the
 * largest size the line goes through it and a smaller one, up to twice its rows; more rows do not take longer per
 * row. */
static int rows_on_lines(const ek_gap *g, double left)
{
    const ek_gap_point *const p = largest_within(g, left);
    if (!p) return 0;
    double n = p->rows + (left - p->seconds) / slope_behind(g, p);
    if (n > p->rows * 2) n = p->rows * 2;
    for (const ek_gap_point *q = p + 1; q < g->point + EK_GAP_POINTS; q++) {
        if (q->rows == 0) continue;
        const double between = p->rows + (left - p->seconds) * (q->rows - p->rows) / (q->seconds - p->seconds);
        if (between < n) n = between;
    }
    return rounded((int)n);
}

static void note_reply(ek_gap *g, double seconds)
{
    if (g->reply == 0 || seconds < g->reply) g->reply = seconds;
    else g->reply += (seconds - g->reply) / 8; /* a step that was held up counts little */
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
    note_point(g, rows, over > whole / 8 ? over * rows : seconds / 8);
    *own = *own == 0 || each > *own ? each : (*own + each) / 2;
    for (int i = 0; i < bin; i++)
        if (g->row[i] < *own) g->row[i] = *own;
    for (int i = bin + 1; i < EK_GAP_BINS; i++) /* a larger step's time per row is an upper bound */
        if (g->row[i] == 0 || g->row[i] > whole) g->row[i] = whole;
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
    if (left > 0) {
        const ek_gap_point *const known = largest_within(g, left + seconds * (AIM_MEASURED - AIM));
        const int lines = rows_on_lines(g, left);
        if (lines > rows) rows = lines;
        if (known && known->rows > rows) rows = known->rows;
    }
    return rows < max_rows ? rows : max_rows;
}

int ek_gap_whole(int rows, int others, int tile, int max_rows)
{
    const int all = rows + others;
    if (tile <= 0 || all < tile * 3 / 4) return rows;
    const int unit = all < 2 * tile ? tile / 2 : tile; /* among few tiles, half a tile is a large fraction */
    const int whole = (all < tile ? tile : all - all % unit) - others;
    if (whole < EK_GAP_LEAST) return rows;
    return whole < max_rows ? whole : max_rows;
}
