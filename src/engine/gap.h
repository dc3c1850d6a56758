/* The number of prompt rows in a step besides replies, so that replies wait no longer than allowed.
 *
 * The time of a row depends on the model, the device, the depth and the number of rows in the step, so it is measured
 * in running steps. A step with more rows takes longer, and its time per row is lower or equal. So a measured step is a
 * lower bound for steps of more rows and an upper bound for steps of fewer rows, and a slow step counts at once. A line
 * through two measured sizes estimates sizes between them and beyond the largest. Before the first measurement the
 * minimum is allowed. Clocks decide here only how many rows share a step, which changes no bit. */
#ifndef EK_ENGINE_GAP_H
#define EK_ENGINE_GAP_H

enum {
    EK_GAP_LEAST = 32, /* rows. Fewer would hardly shorten a step, and prompts have to progress */
    EK_GAP_BINS = 9,   /* sizes of steps: below 64 rows, then octaves */
    EK_GAP_POINTS = 18 /* sizes of steps: half octaves */
};

/* The seconds that prompt rows added to a step of replies. */
typedef struct ek_gap_point {
    int rows; /* 0: unknown */
    double seconds;
} ek_gap_point;

typedef struct ek_gap {
    double reply;            /* seconds of a step without prompts; 0: unknown */
    double row[EK_GAP_BINS]; /* seconds per prompt row, per size of step; 0: unknown */
    ek_gap_point point[EK_GAP_POINTS];
    int latest; /* the point that was measured last */
} ek_gap;

/* Records a step's time, with its number of prompt rows (0: only replies). */
void ek_gap_note(ek_gap *g, int rows, double seconds);
/* The number of prompt rows, EK_GAP_LEAST to max_rows (at least 1), of a step that may end within `seconds`, or within
 * twice the time of a step without prompts if that is longer. `spent` seconds of this time have passed. Only the four
 * leading binary digits are kept, so that few different numbers occur. */
int ek_gap_rows(const ek_gap *g, double seconds, double spent, int max_rows);
/* The number of prompt rows, EK_GAP_LEAST to max_rows and at most `rows`, that together with `others` fill whole tiles,
 * because a tile takes as long for one row as for all; one and a half tiles are allowed. It exceeds `rows` if 3/4 of
 * the first tile are filled; below that `rows` is returned. */
int ek_gap_whole(int rows, int others, int tile, int max_rows);

#endif
