/* What inspect finds out about a checkpoint, and its two ways to be shown. Inside src/cli. */
#ifndef EK_CLI_INSPECT_H
#define EK_CLI_INSPECT_H

#include "cli/frame/about.h"
#include "cli/frame/cli.h"
#include "model/model.h"
#include "model/tower/tower.h"

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
    char device[1024];
    char place[1024]; /* with devices that were named, where the layers would lie and for how many requests; "" else */
} ek_inspect;

/* Fails only where nothing can be said: no such path, a file of another kind, damaged weights, options that cannot be.
 */
ek_err ek_inspect_read(ek_inspect *r, const ek_cli *cli);
void ek_inspect_print(const ek_inspect *r);
void ek_inspect_print_json(const ek_inspect *r);

#endif
