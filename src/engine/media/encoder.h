/* The interface of an encoder: it computes the rows of one picture or sound at a time, in slices that the engine puts
 * between steps. Every device gives the same bits. All calls come from the engine's thread. */
#ifndef EK_ENGINE_MEDIA_ENCODER_H
#define EK_ENGINE_MEDIA_ENCODER_H

#include "media/part/part.h"
#include "model/model.h"
#include "model/tower/tower.h"

enum { EK_IMAGE_TOKENS = 1120 }; /* the largest budget of an image */

typedef struct ek_encoder {
    bool takes[EK_PART_KINDS];
    uint8_t digest[32]; /* everything that rows depend on besides the content: weights, packing, arithmetic */
    bool loaded;        /* digest is known; set by ek_encoder_load */
    bool everywhere;    /* an image's rows see each other in full layers too, and beyond the window (12B) */
    int max_tokens;     /* of an image */
    double row_macs;    /* multiply-adds of a row of a prompt; slices are measured in such rows (ek_pace) */
    void *arg;
    /* Prepares the encoder, for seconds perhaps, and writes the digest; NULL: it is ready. */
    ek_err (*load)(void *arg, uint8_t digest[32]);
    /* rows: tokens x hidden_size floats, written when it is done; m is borrowed until then. */
    ek_err (*begin)(void *arg, const ek_media *m, float *rows); /* NULL: there are no towers */
    /* Computes about this many further multiply-adds. An error drops the encoding. */
    ek_err (*advance)(void *arg, double macs, bool *done);
    void (*drop)(void *arg); /* the encoding that was begun and is not done */
    void (*close)(void *arg);
} ek_encoder;

/* Call it once, before anything is encoded. */
ek_err ek_encoder_load(ek_encoder *x);

/* The towers of a model on the host's processors: for the CPU's executor, and for a device's until it has its own. t
 * and m are borrowed. Without towers *out stays as it is. It computes on the towers' pool; load packs the weights of
 * every sense that the model has. */
ek_err ek_encoder_open(ek_encoder *out, ek_towers *t, const ek_model *m);

/* The length of a slice of an encoding: the time of a step with a given number of prompt rows. Multiply-adds alone do
 * not give the time: towers compute in floats, the decoder mostly in codes, and the ratio of their speeds differs
 * between processors. Therefore two times are measured: that of a prompt's row, in steps with many rows, and that of
 * earlier slices. Slices are short until such a step was seen. Clocks decide only where a slice ends, which changes no
 * bit. */

enum { EK_PACE_ROWS = 64 /* minimum rows of a prompt in a step whose time is used */ };

typedef struct ek_pace {
    double row_seconds; /* 0: not known yet */
    double fraction;    /* the fraction of the step's multiply-adds that a slice gets; 0: nothing was measured */
} ek_pace;

/* Records the time of a step with this many rows. */
void ek_pace_step(ek_pace *p, int rows, double seconds);
/* Multiply-adds of the next slice, which may take as long as a step with this many rows of row_macs. */
double ek_pace_slice(const ek_pace *p, int rows, double row_macs);
/* Records that slice's time; not for the last slice of an encoding, which is shorter. */
void ek_pace_note(ek_pace *p, int rows, double seconds);

#endif
