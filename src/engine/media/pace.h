/* How long a slice of an encoding may be: as long as a step with so many rows of a prompt.
 *
 * Multiply-adds do not tell: towers compute in floats, the decoder mostly in codes, and how much faster those are is
 * another number on every processor. So both are measured: what a row of a prompt takes, in steps that have many, and
 * how long the slices are that were asked for. Until such a step was seen, slices are short. Only where a slice ends
 * depends on clocks, which changes no bit of what it computes. */
#ifndef EK_ENGINE_MEDIA_PACE_H
#define EK_ENGINE_MEDIA_PACE_H

enum { EK_PACE_ROWS = 64 /* of a prompt, at least, in a step that tells what one takes */ };

typedef struct ek_pace {
    double row_seconds; /* 0: not known yet */
    double share;       /* of the step's multiply-adds that a slice gets; 0: nothing was measured */
} ek_pace;

/* A step took so long, with so many rows. */
void ek_pace_step(ek_pace *p, int rows, double seconds);
/* Multiply-adds of the next slice, which may take as long as a step with so many rows of row_macs. */
double ek_pace_slice(const ek_pace *p, int rows, double row_macs);
/* That slice took so long; not of one that ended the work, and so was shorter. */
void ek_pace_note(ek_pace *p, int rows, double seconds);

#endif
