/* The contents of a written model: tensors, their names and formats, the weights from which they are made, and the
 * positions of their bytes in files. Nothing is read or written here.
 *
 * Formats (the rule that docs/MODELS.md states): vectors keep every bit (F32 in GGUF, in safetensors BF16 if that loses
 * no bit, else F32). The router is F32, in MLX 8 bits. Tables (embed_tokens, embed_tokens_per_layer), k_proj and v_proj
 * have at least 6 bits, the three per-layer-input matrices 8. If a format's blocks do not divide a row, it falls back
 * to blocks of 32 with at least as many bits, then to BF16. */
#ifndef EK_CONVERT_LAYOUT_H
#define EK_CONVERT_LAYOUT_H

#include "convert/target.h"
#include "model/weights/weights.h"
#include "tensor/gguf.h"

typedef enum ek_convert_form { EK_FORM_GGUF, EK_FORM_HF, EK_FORM_MLX } ek_convert_form;

/* A stored array: each row of the tensor has row_bytes in it. */
typedef struct ek_out_plane {
    char name[208];
    const char *dtype; /* of safetensors */
    int64_t dim[3];    /* outermost first */
    size_t row_bytes;
    int file;    /* index */
    uint64_t at; /* offset of row 0 in the file */
} ek_out_plane;

typedef struct ek_out {
    const ek_target *target;
    int n_dims, n_planes;
    int64_t rows; /* over all parts */
    int k;
    const ek_item **part; /* parts: items whose rows follow one another */
    int n_parts;
    ek_out_plane plane[EK_TARGET_PLANES];
} ek_out;

typedef struct ek_layout {
    ek_convert_form form;
    ek_out *out;
    int n;
    const ek_item **parts; /* of all tensors */
    ek_item rope;          /* rope_freqs.weight, which only GGUF has */
    float *rope_values;
    ek_item order; /* a drafter's masked_embedding.token_ordering, which is not a weight */
    float *order_values;
    double bytes; /* of all planes */
} ek_layout;

typedef struct ek_layout_opts {
    ek_convert_form form;
    const ek_target *target; /* format of most matrices */
    bool nested;             /* names of a model with towers: model.language_model. */
    bool invented;           /* the items' own formats are used; MLX only */
    uint64_t seed;           /* of random vectors */
    const int32_t *order;    /* a drafter's tokens by centroid, vocab_size of them; NULL: none */
} ek_layout_opts;

/* items must outlive the layout. EUNSUPPORTED if the form cannot hold them. Call ek_layout_fini in any case. */
ek_err ek_layout_make(ek_layout *l, const ek_layout_opts *o, const ek_config *c, const ek_items *items);
void ek_layout_fini(ek_layout *l);

/* The module's name in config.json: name without the model's prefix, .weight and .scales. */
void ek_layout_module(const ek_out *t, char *out, size_t room);

/* --- the files: the position of each plane, and the files' heads --- */

typedef struct ek_place_file {
    char *name; /* name in the folder; whole path of a GGUF file */
    ek_buf head;
    uint64_t bytes; /* with the head */
} ek_place_file;

typedef struct ek_place {
    ek_place_file *file;
    int n;
    ek_buf index; /* model.safetensors.index.json; empty with one file */
} ek_place;

/* Divides the tensors into files of at most max_bytes (a tensor alone may be larger; 0: one file), in order. */
ek_err ek_place_gguf(ek_place *p, ek_layout *l, const ek_gguf_meta *meta, const char *path, double max_bytes);
ek_err ek_place_safetensors(ek_place *p, ek_layout *l, double max_bytes);
void ek_place_fini(ek_place *p);

#endif
