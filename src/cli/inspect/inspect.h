/* What a checkpoint is, in a few words or in full, and the two ways in which inspect shows it. Describes what cannot be
 * run as well. Inside src/cli. */
#ifndef EK_CLI_INSPECT_H
#define EK_CLI_INSPECT_H

#include "base/err.h"
#include "cli/frame/cli.h"
#include "model/config/config.h"
#include "model/model.h"
#include "model/tower/tower.h"

/* ------------------------------------------------------------------ in a few words, for list and inspect */

typedef struct ek_about {
    char container[24];  /* "safetensors", "MLX", "GGUF", "file" */
    char model_type[64]; /* as config.json or the file's metadata call it; "" if they do not */
    char variant[24];    /* "E2B", "26B-A4B", ...; "own" for another Gemma 4; "" for what is none */
    char format[128]; /* of most of the weights, as the files say: "bf16", "4 bits in groups of 64", "gptq, 4 bits" */
    char method[48];  /* the quantiser that config.json names beside MLX: "gptq", "compressed-tensors"; "" without */
    bool drafter;
} ek_about;

/* path: a folder or a file. Never fails: what cannot be read is not said. */
void ek_about_read(ek_about *a, const char *path);
/* "Gemma 4 E2B, safetensors, bf16", or what is known. */
void ek_about_text(char *out, size_t room, const ek_about *a);

/* The configuration, if it is a Gemma 4's. The container's error, if it cannot be read; *shape says whether the shape
 * is known all the same, as it is where only the quantisation is the hindrance. */
ek_err ek_about_config(ek_config *out, const char *path, bool *shape);

/* The published size that a configuration has, "own" if none. */
const char *ek_about_variant(const ek_config *c);

/* ------------------------------------------------------------------ in full, for inspect */

enum { EK_INSPECT_TYPES = 64 };

/* Tensors of one stored type. */
typedef struct ek_inspect_type {
    char name[16];
    int n;
    double bytes;
} ek_inspect_type;

/* Keys and values in one format, the same for keys and for values. */
typedef struct ek_inspect_kv {
    const char *name;
    double full, sliding; /* bytes per token in layers of a kind; in sliding ones for a token in their window */
    double request;       /* of one request of ctx tokens */
    int fit, fit_max;     /* requests of ctx tokens, and of the whole context, in free_bytes */
} ek_inspect_kv;

typedef struct ek_inspect {
    const ek_cli *cli;
    const char *path; /* NULL: of a published model that is not here */
    ek_about about;
    ek_inspect_type type[EK_INSPECT_TYPES]; /* the largest first */
    int n_types, n_tensors;
    double file_bytes;
    bool has_config; /* config holds a Gemma 4, or a drafter */
    ek_config config;
    bool runs;
    char why[1100];     /* why it does not, or as what it does; "" without */
    ek_model_need need; /* if it runs as a model */
    ek_model *model;    /* without weights; while it is read, as its towers */
    ek_towers *towers;
    bool measured;
    int ctx;
    double weight_bytes; /* in memory, those of towers too; where it does not run, as stored */
    double tower_bytes;  /* of these, what the first picture and the first sound take */
    double free_bytes;   /* that serve would give to keys and values: half of what is left beside the weights */
    ek_inspect_kv kv[EK_KV_FORMAT_COUNT];
    int n_kv;
    double device_room; /* that a CUDA device would give to keys and values; 0: it has no room, or there is none */
    char device[1024];
    char place[1024]; /* with devices that were named, where the layers would lie and for how many requests; "" else */
} ek_inspect;

/* Fails only where nothing can be said: no such path, a file of another kind, damaged weights, options that cannot be.
 */
ek_err ek_inspect_read(ek_inspect *r, const ek_cli *cli);
/* What a published size with weights of this many bits ("e2b", "4"; "0": bf16) needs here. */
typedef struct ek_inspect_fit {
    double needs, free, reads; /* bytes: with a request of 8192 tokens; free here; that a token reads */
    bool on_device;            /* a CUDA device has room */
} ek_inspect_fit;
ek_err ek_inspect_fits(ek_inspect_fit *out, const ek_cli *cli, const char *size, const char *bits);

void ek_inspect_print(const ek_inspect *r);
void ek_inspect_print_json(const ek_inspect *r);

#endif
