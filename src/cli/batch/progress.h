/* The progress of a batch on standard error: on a terminal one line that is drawn again, within its width; else a line
 * every 10 seconds. Inside src/cli. */
#ifndef EK_CLI_PROGRESS_H
#define EK_CLI_PROGRESS_H

#include "batch/batch.h"

typedef struct ek_progress {
    bool tty, drawn;
    double begun, shown; /* ek_now() */
} ek_progress;

void ek_progress_init(ek_progress *p);
void ek_progress_show(ek_progress *p, const ek_batch_progress *now);
void ek_progress_clear(ek_progress *p); /* before other lines, and at the end */

/* Writes the line, at most `width` columns, ASCII; passed: seconds since the run began. */
void ek_progress_text(char *out, size_t room, const ek_batch_progress *p, double passed, int width);

#endif
