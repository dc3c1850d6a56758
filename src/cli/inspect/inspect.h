/* The description of a checkpoint, short or in full, and the two forms in which inspect shows it. Also describes models
 * that cannot run. Inside src/cli. */
#ifndef EK_CLI_INSPECT_H
#define EK_CLI_INSPECT_H

#include "base/err.h"
#include "cli/frame/cli.h"
#include "model/config/config.h"
#include "model/model.h"
#include "model/tower/tower.h"

/* --- the short description, for list and inspect --- */

typedef struct ek_about {
    char container[24];  /* "safetensors", "MLX", "GGUF", "file" */
    char model_type[64]; /* in the words of config.json or the file's metadata; "": none */
    char variant[24];    /* "E2B", "26B-A4B", ...; "own": another Gemma 4; "": no Gemma 4 */
    char format[128];    /* of most weights, in the files' words: "bf16", "4 bits in groups of 64", "gptq, 4 bits" */
    char method[48];     /* the quantiser of config.json, except MLX: "gptq", "compressed-tensors"; "": none */
    bool drafter;
} ek_about;

/* path: a folder or a file. Never fails: unreadable facts are left out. */
void ek_about_read(ek_about *a, const char *path);
/* "Gemma 4 E2B, safetensors, bf16", or the known part of it. */
void ek_about_text(char *out, size_t room, const ek_about *a);

/* The configuration of a Gemma 4. The container's error if it cannot be read; *shape: the shape is known anyway,
 * because only the quantisation is unreadable. */
ek_err ek_about_config(ek_config *out, const char *path, bool *shape);

/* The published size of a configuration, or "own". */
const char *ek_about_variant(const ek_config *c);

/* --- the full description, for inspect --- */

enum { EK_INSPECT_TYPES = 64 };

/* Tensors of one stored type. */
typedef struct ek_inspect_type {
    char name[16];
    int n;
    double bytes;
} ek_inspect_type;

/* Keys and values in one format for both. */
typedef struct ek_inspect_kv {
    const char *name;
    double full, sliding; /* bytes per token, per kind of layer; in sliding layers for a token in the window */
    double request;       /* bytes of one request of ctx tokens */
    int fit, fit_max;     /* number of requests of ctx tokens, and of the whole context, in free_bytes */
} ek_inspect_kv;

typedef struct ek_inspect {
    const ek_cli *cli;
    const char *path; /* NULL: a published model that is not on this machine */
    ek_about about;
    ek_inspect_type type[EK_INSPECT_TYPES]; /* the largest first */
    int n_types, n_tensors;
    double file_bytes;
    bool has_config; /* config holds a Gemma 4 or a drafter */
    ek_config config;
    bool runs;
    char why[1100];     /* the reason if it does not run, or the kind as which it runs; "": none */
    ek_model_need need; /* if it runs as a model */
    ek_model *model;    /* without weights, while it is read */
    ek_towers *towers;
    bool measured;
    int ctx;
    double weight_bytes; /* in memory, towers included; as stored, if it does not run */
    double tower_bytes;  /* the part of the first picture and the first sound */
    double free_bytes;   /* memory that serve would give to keys and values: half of the rest beside the weights */
    ek_inspect_kv kv[EK_KV_FORMAT_COUNT];
    int n_kv;
    double device_room; /* memory that a CUDA device would give to keys and values; 0: no room, or no device */
    char device[1024];
    char place[1024]; /* with named devices: the placement of layers and the number of requests; "" otherwise */
} ek_inspect;

/* The needs of a published size with weights of this many bits ("e2b", "4"; "0": bf16) on this machine. */
typedef struct ek_inspect_fit {
    double needs, free, reads; /* bytes: needed with a request of 8192 tokens; free here; read per token */
    bool on_device;            /* a CUDA device has room */
} ek_inspect_fit;
ek_err ek_inspect_fits(ek_inspect_fit *out, const ek_cli *cli, const char *size, const char *bits);

void ek_inspect_print(const ek_inspect *r);
void ek_inspect_print_json(const ek_inspect *r);

#endif
