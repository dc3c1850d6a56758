/* The towers of a checkpoint: encoders that turn a picture or sound into rows of the text model.
 *
 * ek_towers_open reads what the model accepts and binds every weight. ek_tower_begin_* starts the encoding of one
 * picture or sound. ek_tower_advance does a bounded part of it. ek_tower_rows is the result: the rows of the soft
 * tokens, f32, as they enter the first layer of the text model (not scaled like embeddings of tokens).
 *
 * Contract: a row is a function of the decoded pixels (or samples), of the way they were resized, and of the weights.
 * No bit depends on the limits of ek_tower_advance, on threads, on the instruction set, or on other encodings.
 * Formulas: transformers, modeling_gemma4.py and modeling_gemma4_unified.py, in f32 (docs/numerics/media.md).
 *
 * Nothing is padded: a picture of n patches runs n rows. */
#ifndef EK_MODEL_TOWER_H
#define EK_MODEL_TOWER_H

#include "base/machine/pool.h"
#include "media/mel.h"
#include "media/picture.h"

typedef struct ek_towers ek_towers;

/* The model's inputs besides text. */
typedef struct ek_towers_info {
    bool image, sound;              /* whether the model takes them; if not, their fields are zero */
    ek_patch_kind image_kind;       /* EK_PATCH_TOWER or EK_PATCH_UNIFIED */
    ek_patching patching;           /* for ek_picture_opts: pictures must be cut into these patches */
    int image_tokens, frame_tokens; /* soft tokens per picture and per frame of a video, by default */
    int video_frames;               /* frames per video */
    ek_sound_kind sound_kind;
    int hidden;         /* floats of a row: the text model's hidden size */
    bool bidirectional; /* use_bidirectional_attention "vision": rows of a picture see each other in sliding layers */
    /* Token ids; -1: the model has none. */
    int32_t boi, image_token, eoi, boa, sound_token, eoa, video_token;
} ek_towers_info;

typedef struct ek_towers_opts {
    unsigned cpu;        /* EK_CPU_* */
    bool exact;          /* quantised weights are widened to f32 */
    bool quantise;       /* float matrices become 8-bit codes; not with exact */
    double memory_limit; /* maximum bytes of packed weights; 0: the memory that the system has available */
    ek_pool *pool;       /* packs the weights and encodes; borrowed until close; NULL: one thread */
    /* Instead of path: towers of this published shape with random weights made in memory, "e2b", "e4b", "12b", "26b" or
     * "31b"; NULL: none. */
    const char *synthetic;
    /* Folder that keeps packed weights for the next start, one file per sense, like ek_model_opts.packed_dir; NULL:
     * none. */
    const char *packed_dir;
    /* Number of patches from which on a picture's attention is in integers (tower_vision.h); 0: the engine's rule. Part
     * of the digest. For tests. */
    int integers_from;
    const char *mmproj; /* the file with a GGUF's towers; NULL: the one found beside the model (docs/MEDIA.md) */
} ek_towers_opts;

/* path: as for ek_model_open. Reads the configuration and checks every tensor of the towers by name, shape and type;
 * packs nothing yet. A model without towers opens too. EFORMAT and EUNSUPPORTED name file and field or tensor. */
ek_err ek_towers_open(ek_towers **out, const char *path, const ek_towers_opts *opts);
void ek_towers_close(ek_towers *t); /* NULL is allowed; only after all works were freed */
const ek_towers_info *ek_towers_get(const ek_towers *t);
/* The GGUF file that holds the towers: the named one, the one found beside the model, or the model's own file. NULL:
 * the towers lie in the model's folder, or there are none. */
const char *ek_towers_file(const ek_towers *t);

/* EK_OK, or EUNSUPPORTED with a sentence that names what the model lacks. */
ek_err ek_towers_takes_image(const ek_towers *t);
ek_err ek_towers_takes_sound(const ek_towers *t);

/* Bytes of the packed weights. */
size_t ek_towers_image_bytes(const ek_towers *t);
size_t ek_towers_sound_bytes(const ek_towers *t);
/* Packs the weights of one sense, once, with all threads of the pool; takes seconds. Call it on the thread that uses
 * the pool; otherwise the first ek_tower_begin_* does it. ENOMEM with both numbers. */
ek_err ek_towers_load_image(ek_towers *t);
ek_err ek_towers_load_sound(ek_towers *t);

/* A hash of everything that rows depend on besides pixels or samples: weights, packing, arithmetic. Equal for equal
 * contents; for keys of caches. The first call packs and reads all weights of the sense. Errors of load. */
ek_err ek_towers_digest_image(ek_towers *t, uint64_t *out);
ek_err ek_towers_digest_sound(ek_towers *t, uint64_t *out);

/* The cost of an encoding, from the size alone. */
typedef struct ek_tower_cost {
    int rows;     /* soft tokens */
    double macs;  /* multiply-adds, attention included */
    size_t bytes; /* upper bound of one work's scratch memory and result */
} ek_tower_cost;
/* fit: of a picture that was cut for this model. Errors of takes_image. */
ek_err ek_tower_cost_image(ek_tower_cost *out, const ek_towers *t, const ek_image_fit *fit);
/* samples: number of samples at 16 kHz. Errors of takes_sound and ek_sound_tokens. */
ek_err ek_tower_cost_sound(ek_tower_cost *out, const ek_towers *t, int samples);

/* The encoding of one picture or sound. One thread at a time. */
typedef struct ek_tower_work ek_tower_work;

/* The picture or sound is read during the call only. EINVAL if it was made for another model; ENOMEM; errors of load.
 */
ek_err ek_tower_begin_image(ek_tower_work **out, ek_towers *t, const ek_picture *picture);
ek_err ek_tower_begin_sound(ek_tower_work **out, ek_towers *t, const ek_sound *sound);

/* Continues for about max_macs multiply-adds, at least by one small part (some rows through a part of a layer), on the
 * pool's threads; the calling thread must be the one that may use the pool. *done: the rows are complete. Allocates
 * nothing and cannot fail. */
void ek_tower_advance(ek_tower_work *w, double max_macs, bool *done);
/* Multiply-adds that are left; 0: done. */
double ek_tower_left(const ek_tower_work *w);
/* The result, once done: [*rows][hidden], contiguous; owned by the work. */
const float *ek_tower_rows(const ek_tower_work *w, int *rows);
void ek_tower_free(ek_tower_work *w); /* at any time; NULL is allowed */

#endif
