/* Inside src/model/tower: the source of the towers' tensors and configuration: safetensors with the names of
 * transformers or mlx-vlm, or (tower_gguf.c) the mmproj file of a GGUF. */
#ifndef EK_MODEL_TOWER_SOURCE_H
#define EK_MODEL_TOWER_SOURCE_H

#include <jansson.h>

#include "media/picture.h"
#include "ops/weights/weight_type.h"
#include "tensor/checkpoint.h"

/* A tensor as stored; borrowed from the source. */
typedef struct ek_tower_tensor {
    const char *name, *file;
    int n_dims;                 /* -1: synthetic, of any shape, without data */
    int64_t dim[EK_MAX_DIMS];   /* outermost first */
    const ek_weight_type *type; /* NULL: a type from which floats cannot be read */
    const uint8_t *data;
} ek_tower_tensor;

typedef struct ek_tower_source ek_tower_source;

typedef struct ek_tower_source_ops {
    /* False if it does not exist. name: transformers' name without "model.". */
    bool (*find)(ek_tower_source *s, const char *name, ek_tower_tensor *out);
    /* Whether any tensor's name begins with `begin`. */
    bool (*has)(ek_tower_source *s, const char *begin);
    /* The matrix of a module, quantised or not. */
    ek_err (*matrix)(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out);
    /* NULL: unknown to this source. EFORMAT names the first tensor whose name begins with one of `begin` (ends with
     * NULL) and that was neither found nor part of a matrix. */
    ek_err (*check_unused)(ek_tower_source *s, const char *const *begin);
    void (*drop_pages)(ek_tower_source *s);
    void (*close)(ek_tower_source *s);
} ek_tower_source_ops;

struct ek_tower_source {
    const ek_tower_source_ops *ops;
    char *path;
    const char *file; /* the configuration's file, for messages: "config.json" */
    json_t *config;   /* in the form of config.json, for any container; owned */
    void *made;  /* memory of the latest tensor, if it is not the file's; a caller that keeps the data takes it over */
    bool folder; /* path is a folder; it may have files of processors beside config.json */
    bool beside; /* the file was found beside the model: its errors are not the model's */
    bool gguf;   /* tensors are in the order of llama.cpp and Ollama: see tower_gguf.h */
};

/* mmproj, synthetic: the options of ek_towers_opts. *out NULL: the container has no towers (a GGUF without a file of
 * them). */
ek_err ek_tower_source_open(ek_tower_source **out, const char *path, const char *mmproj, const char *synthetic);
void ek_tower_source_close(ek_tower_source *s);

/* Call after the last tensor of a sense. EFORMAT names one of its tensors that was not read. */
ek_err ek_tower_source_check_unused(ek_tower_source *s, const char *const *begin);

/* Whether any tensor's name begins with `name`: "audio_tower.". */
bool ek_tower_source_has(ek_tower_source *s, const char *name);
bool ek_tower_source_find(ek_tower_source *s, const char *name, ek_tower_tensor *out);
/* EFORMAT names tensor and file if it is missing, misshapen or of another type. */
ek_err ek_tower_source_need(ek_tower_source *s, const char *name, int n_dims, const int64_t *dim, ek_tower_tensor *out);
ek_err ek_tower_source_matrix(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out);

/* Opens the towers in a folder of safetensors. */
ek_err ek_tower_folder_open(ek_tower_source **out, const char *path);

/* --- settings for preparing pictures and frames, from the files beside config.json ---
 *
 * Transformers' rule chooses the file: image_processor in processor_config.json, else preprocessor_config.json; for
 * videos video_processor in processor_config.json, else video_preprocessor_config.json, else preprocessor_config.json.
 * Without any file the defaults of Gemma4ImageProcessor and Gemma4VideoProcessor hold. image_seq_length is ignored,
 * because a picture's number of tokens follows from its size. */

typedef struct ek_processor {
    int image_tokens, frame_tokens; /* maximum soft tokens (max_soft_tokens), for which ek_budget_known is true */
    int frames;                     /* frames per video, 1 to 32: num_frames */
} ek_processor;

/* The settings of the published models. */
void ek_processor_default(ek_processor *out);
/* folder: the one with config.json. patching: the model's, with which the files must agree. EFORMAT for an invalid
 * value, EUNSUPPORTED for another kind of preparation; both name file and key. */
ek_err ek_processor_read(ek_processor *out, const char *folder, ek_patching patching);

#endif
