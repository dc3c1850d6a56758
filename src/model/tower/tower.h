/* The towers of a checkpoint: what makes rows of the text model out of a picture or a sound.
 *
 * ek_towers_open reads what the model takes and binds every weight; ek_tower_begin starts the encoding of one picture
 * or sound, ek_tower_advance does a bounded part of it, and ek_tower_rows is the result: the soft tokens' rows, f32, as
 * they enter the first layer of the text model (not scaled like embeddings of tokens).
 *
 * Contract: a row is a function of the decoded pixels (or samples), of the way they were resized, and of the weights.
 * Neither the limits given to ek_tower_advance nor threads, instruction set, or what else is encoded change a bit of
 * it. Formulas: transformers, modeling_gemma4.py and modeling_gemma4_unified.py, in f32 (docs/numerics/media.md).
 *
 * Nothing is padded: a picture of n patches runs n rows. */
#ifndef EK_MODEL_TOWER_H
#define EK_MODEL_TOWER_H

#include "base/machine/pool.h"
#include "media/mel.h"
#include "media/picture.h"

typedef struct ek_towers ek_towers;

/* What a model takes besides text. */
typedef struct ek_towers_info {
    bool image, sound;              /* whether it takes them; the fields of what it does not take are zeros */
    ek_patch_kind image_kind;       /* EK_PATCH_TOWER or EK_PATCH_UNIFIED */
    ek_patching patching;           /* for ek_picture_opts: pictures must have been cut like this */
    int image_tokens, frame_tokens; /* soft tokens that pictures and frames of videos get where nobody says how many */
    int video_frames;               /* that stand for a video */
    ek_sound_kind sound_kind;
    int hidden;         /* floats of a row: the text model's hidden size */
    bool bidirectional; /* use_bidirectional_attention "vision": rows of a picture see each other in sliding layers */
    /* Ids of tokens; -1 where the model has none. */
    int32_t boi, image_token, eoi, boa, sound_token, eoa, video_token;
} ek_towers_info;

typedef struct ek_towers_opts {
    unsigned cpu;           /* EK_CPU_* */
    bool exact;             /* quantised weights are widened to f32 */
    bool quantise;          /* matrices of floats become 8-bit codes; not with exact */
    double memory_limit;    /* bytes of packed weights; 0: what the system has available */
    ek_pool *pool;          /* packs the weights and encodes; borrowed for the towers' life; NULL: one thread */
    const char *synthetic;  /* instead of path: the towers of that published shape with random weights made in
                               memory, "e2b", "e4b", "12b", "26b" or "31b"; NULL: none */
    const char *packed_dir; /* folder that keeps packed weights for the next start, a file for each sense, as
                               ek_model_opts.packed_dir; NULL: none */
    int integers_from;  /* patches from which on a picture's attention is in integers (tower_vision.h); 0: the engine's
                           rule. Of the digest; for tests */
    const char *mmproj; /* beside a GGUF: the file with the towers; NULL: the one that is found there (docs/MEDIA.md) */
} ek_towers_opts;

/* path: as ek_model_open. Reads the configuration and checks every tensor of the towers by name, shape and type; packs
 * nothing yet. A model without towers opens too. EFORMAT and EUNSUPPORTED name file and field or tensor. */
ek_err ek_towers_open(ek_towers **out, const char *path, const ek_towers_opts *opts);
void ek_towers_close(ek_towers *t); /* NULL is fine; after all work was freed */
const ek_towers_info *ek_towers_get(const ek_towers *t);
/* The path of the GGUF that holds the towers: the one that was named or found beside the model, or the model's own
 * file. NULL: they lie in the model's folder, or there are none. */
const char *ek_towers_file(const ek_towers *t);

/* EK_OK, or EUNSUPPORTED with a sentence that says what the model lacks. */
ek_err ek_towers_takes_image(const ek_towers *t);
ek_err ek_towers_takes_sound(const ek_towers *t);

/* Bytes that the weights take once they are packed. */
size_t ek_towers_image_bytes(const ek_towers *t);
size_t ek_towers_sound_bytes(const ek_towers *t);
/* Packs the weights of one sense, once, with all threads of the pool: seconds. The first ek_tower_begin does it if
 * nobody did. The thread that uses the pool; ENOMEM with both numbers. */
ek_err ek_towers_load_image(ek_towers *t);
ek_err ek_towers_load_sound(ek_towers *t);

/* A hash of all that rows depend on besides the pixels or samples: weights, how they are packed, arithmetic. The first
 * call packs and reads all weights of that sense. For keys of caches; the same for equal contents. Errors of load. */
ek_err ek_towers_digest_image(ek_towers *t, uint64_t *out);
ek_err ek_towers_digest_sound(ek_towers *t, uint64_t *out);

/* What encoding will cost, from the size alone. */
typedef struct ek_tower_cost {
    int rows;     /* soft tokens */
    double macs;  /* multiply-adds, those of attention included */
    size_t bytes; /* scratch memory and result of one work, an upper bound */
} ek_tower_cost;
/* fit: of a picture that was cut for this model. Errors of takes_image. */
ek_err ek_tower_cost_image(ek_tower_cost *out, const ek_towers *t, const ek_image_fit *fit);
/* samples of 16 kHz. Errors of takes_sound and ek_sound_tokens. */
ek_err ek_tower_cost_sound(ek_tower_cost *out, const ek_towers *t, int samples);

/* One picture or sound being encoded. One thread at a time. */
typedef struct ek_tower_work ek_tower_work;

/* The picture is read during the call alone; EINVAL if it was cut for another model. ENOMEM; errors of load. */
ek_err ek_tower_begin_image(ek_tower_work **out, ek_towers *t, const ek_picture *picture);
ek_err ek_tower_begin_sound(ek_tower_work **out, ek_towers *t, const ek_sound *sound);

/* Goes on by about max_macs multiply-adds, at least by one small part (some rows through a piece of a layer), on the
 * threads of the towers' pool, which the caller may use. *done: the rows are there. Allocates nothing, cannot fail. */
void ek_tower_advance(ek_tower_work *w, double max_macs, bool *done);
/* Multiply-adds that are left; 0 when it is done. */
double ek_tower_left(const ek_tower_work *w);
/* After it is done: [rows][hidden], one after the other; the work's. */
const float *ek_tower_rows(const ek_tower_work *w, int *rows);
void ek_tower_free(ek_tower_work *w); /* at any time; NULL is fine */

#endif
