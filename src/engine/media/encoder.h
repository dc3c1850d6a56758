/* The interface of an encoder: it computes the rows of one picture or sound at a time, in slices that the engine puts
 * between steps. Every device gives the same bits. All calls come from the engine's thread. */
#ifndef EK_ENGINE_MEDIA_ENCODER_H
#define EK_ENGINE_MEDIA_ENCODER_H

#include "media/part/part.h"
#include "model/model.h"
#include "model/tower/tower.h"

enum { EK_IMAGE_TOKENS = 1120 }; /* of an image: the largest budget */

typedef struct ek_encoder {
    bool takes[EK_PART_KINDS];
    uint8_t digest[32]; /* of all that rows depend on besides the content: weights, how they are packed, arithmetic */
    bool loaded;        /* digest is known; set by ek_encoder_load */
    bool everywhere;    /* if an image's rows see each other, in full layers too, and whatever the window (12B) */
    int max_tokens;     /* of an image */
    double row_macs;    /* multiply-adds of a row of a prompt: what a slice has at most, of so many rows (pace.h) */
    void *arg;
    /* Gets ready, which may take seconds, and says the digest; NULL: it is ready. */
    ek_err (*load)(void *arg, uint8_t digest[32]);
    /* rows: tokens x hidden_size floats, written when it is done; m is borrowed until then. */
    ek_err (*begin)(void *arg, const ek_media *m, float *rows); /* NULL: there are no towers */
    /* Goes on by about so many multiply-adds, and returns when they are done. After an error it is as if it was
     * dropped. */
    ek_err (*advance)(void *arg, double macs, bool *done);
    void (*drop)(void *arg); /* what was begun and is not done */
    void (*close)(void *arg);
} ek_encoder;

/* Once, before anything is encoded. */
ek_err ek_encoder_load(ek_encoder *x);

/* The towers of a model on the host's processors: for the CPU's executor, and for a device's until it has its own. t
 * and m are borrowed. Without towers *out stays as it is. It computes on the towers' pool; load packs the weights of
 * every sense that the model has. */
ek_err ek_encoder_open(ek_encoder *out, ek_towers *t, const ek_model *m);

/* How long a slice of an encoding may be: as long as a step with so many rows of a prompt.
 *
 * Multiply-adds do not tell: towers compute in floats, the decoder mostly in codes, and how much faster those are is
 * another number on every processor. So both are measured: what a row of a prompt takes, in steps that have many, and
 * how long the slices are that were asked for. Until such a step was seen, slices are short. Only where a slice ends
 * depends on clocks, which changes no bit of what it computes. */

enum { EK_PACE_ROWS = 64 /* of a prompt, at least, in a step that tells what one takes */ };

typedef struct ek_pace {
    double row_seconds; /* 0: not known yet */
    double fraction;    /* of the step's multiply-adds that a slice gets; 0: nothing was measured */
} ek_pace;

/* A step took so long, with so many rows. */
void ek_pace_step(ek_pace *p, int rows, double seconds);
/* Multiply-adds of the next slice, which may take as long as a step with so many rows of row_macs. */
double ek_pace_slice(const ek_pace *p, int rows, double row_macs);
/* That slice took so long; not of one that ended the work, and so was shorter. */
void ek_pace_note(ek_pace *p, int rows, double seconds);

#endif
