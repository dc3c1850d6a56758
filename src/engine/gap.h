/* How many rows of prompts a step may have beside replies, so that these wait no longer than they may.
 *
 * What a row takes depends on the model, the device, the depth and how many rows share the step, so it is measured, in
 * steps as they run. A step of more rows is longer, and each of its rows cheaper or equal: so a measured step bounds
 * those of fewer rows from below, and those of more from above, and one that was slow is believed at once. Before any
 * step was measured the least is allowed. Clocks decide here how many rows share a step, which changes no bit. */
#ifndef EK_ENGINE_GAP_H
#define EK_ENGINE_GAP_H

enum {
    EK_GAP_LEAST = 32, /* rows: fewer would hardly make a step shorter, and prompts always go forward */
    EK_GAP_BINS = 9    /* sizes of steps: fewer than 64 rows, then by octaves */
};

typedef struct ek_gap {
    double reply;            /* seconds of a step without prompts; 0: not known */
    double row[EK_GAP_BINS]; /* that a row of a prompt adds, in steps of so many; 0: not known */
} ek_gap;

/* A step took so long, with so many rows of prompts (0: of replies alone). */
void ek_gap_note(ek_gap *g, int rows, double seconds);
/* Rows of prompts, EK_GAP_LEAST to max_rows (at least 1), of a step that may end within `seconds`, or within twice the
 * time of a step without prompts if that is longer; `spent` of it has gone by. Of a number of binary digits the four
 * leading ones are kept, so that there are few different ones. */
int ek_gap_rows(const ek_gap *g, double seconds, double spent, int max_rows);
/* As many rows of prompts, EK_GAP_LEAST to max_rows, as together with `others` are whole tiles, at most `rows` of them:
 * a tile takes as long for one row as for all. More than `rows` where 3/4 of the first tile are there; fewer than that
 * stay as they are. */
int ek_gap_whole(int rows, int others, int tile, int max_rows);

#endif
