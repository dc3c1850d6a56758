#include "engine/media/pace.h"

/* Matrix units multiply codes 30 times as fast as the same processor does floats. */
static const double START = 1.0 / 32, LEAST = 1.0 / 1024;

void ek_pace_step(ek_pace *p, int rows, double seconds)
{
    if (rows < EK_PACE_ROWS || !(seconds > 0)) return;
    const double each = seconds / rows;
    if (p->row_seconds == 0 || each < p->row_seconds) p->row_seconds = each;
    else p->row_seconds += (each - p->row_seconds) / 8; /* one that was held up counts little */
}

static double share_of(const ek_pace *p)
{
    return p->share > 0 ? p->share : START;
}

double ek_pace_slice(const ek_pace *p, int rows, double row_macs)
{
    return share_of(p) * rows * row_macs;
}

void ek_pace_note(ek_pace *p, int rows, double seconds)
{
    if (p->row_seconds == 0 || !(seconds > 0)) return;
    double change = rows * p->row_seconds / seconds;
    if (change > 1.25) change = 1.25; /* what comes next may be slower: attention is */
    double share = share_of(p) * change;
    p->share = share > 1 ? 1 : share < LEAST ? LEAST : share;
}
