/* The description of the served model for clients, besides its name: members that APIs with a list of models have.
 * Nothing that computes an answer reads it. Immutable once it is made. */
#ifndef EK_SERVE_MODEL_CARD_H
#define EK_SERVE_MODEL_CARD_H

#include "base/buf.h"
#include "base/hash/hash.h"
#include "model/model.h"

enum { EK_SERVED_MAX = 64, EK_SERVED_BYTES = 256 }; /* further names; bytes of a name, also of a requested one */

typedef struct ek_model_card {
    char *name;
    char *names[EK_SERVED_MAX]; /* further names; those of the server's lists come first */
    int n_names, n_listed;
    bool strict;        /* requests for another name are refused */
    const char *format; /* the format of its files: "gguf" or "safetensors" */
    char *weights;      /* their types, as the numerics id names them: "q8.64+q4.64", "bf16" */
    char digest[65];    /* 64 hex digits, others for another name, size, shape or format: no checksum of the bytes */
    int64_t size;       /* bytes of the files with weights; 0 for a model that has none */
    int64_t modified;   /* seconds since 1970: the time of the newest file, or of this call */
    uint64_t parameters;
    bool on_device;          /* weights lie on a device */
    bool image, audio;       /* it takes pictures, and sounds */
    int ctx_tokens;          /* prompt and reply together */
    const ek_config *config; /* borrowed from the model */
} ek_model_card;

/* path: the model's folder or file; unreadable properties are left out. ctx_tokens: the engine's. The caller sets
 * on_device. */
void ek_model_card_make(ek_model_card *card, const ek_model *model, const char *path, const char *name, int ctx_tokens);
/* Adds further names, separated by commas: those of the server's lists, and others; NULL: none. Names beyond
 * EK_SERVED_MAX are left out. */
void ek_model_card_names(ek_model_card *card, const char *listed, const char *others);
/* Is this one of its names? In any case, and with or without the tag "latest", as clients of Ollama write them. */
bool ek_model_card_is(const ek_model_card *card, const char *name);
/* EINVAL for a list with an empty name, a name that is too long, or too many names. */
ek_err ek_served_check(const char *names);
void ek_model_card_fini(ek_model_card *card); /* also of a zeroed one */

/* --- the fingerprint of a run: everything except the request that decides an answer ---
 *
 * Equal fingerprints mean equal answers.
 * {"object":"fingerprint","model_sha256":…,"numerics":…,"program":…,"context":…,"sampling":{…},"sha256":…}. The last
 * member is the SHA-256 of the bytes from the quote before model_sha256 to the brace that ends "sampling". */

enum { EK_FINGERPRINT = 65 }; /* hex digits and NUL */

/* Appends the fingerprint, and writes its hash to sha256. digest: ek_model_digest; numerics: the model's id; ctx:
 * maximum tokens of prompt and reply; sampling is the model's default, used by requests that set none. */
void ek_fingerprint_write(ek_buf *out, char sha256[EK_FINGERPRINT], const char *digest, const char *numerics, int ctx,
                          const ek_config *config);

#endif
