/* Inside src/model/tower: where the towers' tensors and their configuration come from: safetensors in the names of
 * transformers or of mlx-vlm, or (tower_gguf.c) the mmproj file of a GGUF. */
#ifndef EK_MODEL_TOWER_SOURCE_H
#define EK_MODEL_TOWER_SOURCE_H

#include <jansson.h>

#include "model/source/quant.h"
#include "ops/weights/weight_type.h"
#include "tensor/checkpoint.h"

/* A tensor as it is stored: borrowed from the source. */
typedef struct ek_tower_tensor {
    const char *name, *file;
    int n_dims;                 /* -1: synthetic, of any shape and without data */
    int64_t dim[EK_MAX_DIMS];   /* outermost first */
    const ek_weight_type *type; /* NULL: of no type that floats can be read from */
    const uint8_t *data;
} ek_tower_tensor;

typedef struct ek_tower_source ek_tower_source;

typedef struct ek_tower_source_ops {
    /* False if there is none. name: of transformers, without "model.". */
    bool (*find)(ek_tower_source *s, const char *name, ek_tower_tensor *out);
    /* Whether any tensor's name begins like this. */
    bool (*has)(ek_tower_source *s, const char *begin);
    /* The matrix of a module, quantised or not. */
    ek_err (*matrix)(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out);
    /* NULL: not known. EFORMAT names the first tensor whose name begins like one of these (NULL ends them) and that was
     * neither found nor part of a matrix. */
    ek_err (*check_unused)(ek_tower_source *s, const char *const *begin);
    void (*drop_pages)(ek_tower_source *s);
    void (*close)(ek_tower_source *s);
} ek_tower_source_ops;

struct ek_tower_source {
    const ek_tower_source_ops *ops;
    char *path;
    const char *file; /* of the configuration, for messages: "config.json" */
    json_t *config;   /* in the form of config.json, whatever the container says; owned */
    void *made;       /* memory that the tensor found last lies in, not the file's; whoever keeps the data takes it */
    bool folder;      /* path is one, with files of processors beside config.json, or without */
    bool beside;      /* its file was found beside the model: what is wrong with it is no error of the model's */
    bool gguf;        /* its tensors are in the order of llama.cpp and Ollama: see tower_gguf.h */
};

/* mmproj, synthetic: of ek_towers_opts. *out NULL: no place for towers there (a GGUF without a file of them). */
ek_err ek_tower_source_open(ek_tower_source **out, const char *path, const char *mmproj, const char *synthetic);
void ek_tower_source_close(ek_tower_source *s);

/* After the last tensor of a sense: EFORMAT names one that belongs to it and that nothing read. */
ek_err ek_tower_source_check_unused(ek_tower_source *s, const char *const *begin);

/* Whether any tensor's name begins like this: "audio_tower.". */
bool ek_tower_source_has(ek_tower_source *s, const char *name);
bool ek_tower_source_find(ek_tower_source *s, const char *name, ek_tower_tensor *out);
/* EFORMAT names tensor and file where it is missing, of another shape or type. */
ek_err ek_tower_source_need(ek_tower_source *s, const char *name, int n_dims, const int64_t *dim, ek_tower_tensor *out);
ek_err ek_tower_source_matrix(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out);

/* Towers in a folder of safetensors. */

ek_err ek_tower_folder_open(ek_tower_source **out, const char *path);

/* Vision towers of the published shapes with random weights made in memory. */

/* name: e2b, e4b, 12b, 26b or 31b; ENOTFOUND lists them. They see, and do not hear. */
ek_err ek_tower_synthetic_open(ek_tower_source **out, const char *name);

#endif
