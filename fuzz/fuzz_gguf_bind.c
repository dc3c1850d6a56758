/* A model bound from a GGUF file's tables. The first bytes choose a small model and how it is written (by the writer of
 * the tests), the others edit its metadata and its table of tensors: dropped, renamed, of other types, values and
 * shapes, a few bytes of data. Offsets and lengths follow, so that most files get past the container.
 * Properties: without edits a model binds; with them it does, or is refused in one line that names the file; a bound
 * weight lies within a tensor (the file is exactly as long as its tables say, so that a read behind it is seen);
 * packed, it gives back its values where they are numbers, and what cannot be packed says so in one line; nothing stays
 * allocated. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/support/drafter.h"
#include "../tests/support/gguf_memory.h"
#include "../tests/support/gguf_model.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/source/source_gguf.h"
#include "model/weights/weights.h"

enum {
    MAX_ROWS = 512,
    MAX_EDITS = 24,
    MAX_DATA = 1 << 20,
    MAX_WEIGHTS = 1 << 18,
    MAX_BLOCK = 1 << 20,
    KEY = 96,
    BASES = 64
};

typedef struct input {
    const uint8_t *at, *end;
} input;

static unsigned take(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static unsigned take2(input *in)
{
    unsigned low = take(in);
    return low | take(in) << 8;
}

/* Numbers that break things, or any byte. */
static int64_t number(input *in)
{
    static const int64_t odd[] = {INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, -1,  65535, 65536,
                                  1 << 20,   1 << 24,   1 << 28,    256,       512,       128, 64,    32};
    unsigned v = take(in);
    return v < 224 ? (int64_t)v : v < 240 ? odd[v - 224] : (int64_t)take2(in);
}

static double fraction(input *in)
{
    static const double odd[] = {0, 1, -1, NAN, INFINITY, 1e30, 1e-30, 0.25, 1e4, 30, 1e-6, 1e9, 0.5, 2, -0.0, 1e300};
    return odd[take(in) % 16];
}

/* ------------------------------------------------------------------ tables */

typedef struct value {
    char key[KEY];
    uint32_t kind;
    bool is_array;
    uint64_t count;
    const uint8_t *data; /* of the base, or made */
    size_t bytes;
} value;

typedef struct tensor {
    char name[KEY];
    uint32_t type;
    int n_dims;
    int64_t dim[EK_GGUF_MAX_DIMS];
    const uint8_t *data;
    size_t bytes, poke_at;
    uint8_t poke;
} tensor;

typedef struct tables {
    value value[MAX_ROWS];
    tensor tensor[MAX_ROWS];
    int n_values, n_tensors, n_made;
    uint8_t *made[MAX_EDITS];
} tables;

static void *make(tables *t, size_t n)
{
    return t->made[t->n_made++] = ek_alloc(n + 1);
}

static void read_tables(tables *t, const ek_gguf *g)
{
    *t = (tables){.n_values = gguf_value_count(g), .n_tensors = ek_gguf_tensor_count(g)};
    if (t->n_values > MAX_ROWS || t->n_tensors > MAX_ROWS) __builtin_trap();
    for (int i = 0; i < t->n_values; i++) {
        const ek_gguf_value *v = gguf_value_at(g, i);
        t->value[i] = (value){
            .kind = v->kind, .is_array = v->is_array, .count = v->count, .data = v->data, .bytes = v->bytes};
        memcpy(t->value[i].key, v->key, v->n_key < KEY ? v->n_key : KEY - 1);
    }
    for (int i = 0; i < t->n_tensors; i++) {
        const ek_gguf_tensor *v = ek_gguf_tensor_at(g, i);
        tensor *to = &t->tensor[i];
        *to = (tensor){.type = v->type, .n_dims = v->n_dims, .data = v->data, .bytes = v->bytes};
        memcpy(to->dim, v->dim, sizeof to->dim);
        memcpy(to->name, v->name, strlen(v->name) < KEY ? strlen(v->name) : KEY - 1);
    }
}

/* What a tensor takes; 0 where nobody can say. */
static size_t bytes_of(const tensor *t)
{
    const ek_gguf_type *type = ek_gguf_type_of(t->type);
    double n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (double)(t->dim[d] < 0 ? 1e30 : (double)t->dim[d]);
    if (!type || n > MAX_DATA || (t->n_dims && t->dim[0] % type->block)) return 0;
    return (size_t)n / (size_t)type->block * (size_t)type->bytes;
}

/* The file; data past MAX_DATA is left out, which its parser then says. */
static void write_file(const tables *t, ek_buf *out)
{
    gguf_file f = {0};
    ek_buf data = {0};
    for (int i = 0; i < t->n_values; i++) {
        const value *v = &t->value[i];
        if (v->is_array) gguf_array(&f, v->key, v->kind, v->count, v->data, v->bytes);
        else gguf_value(&f, v->key, v->kind, v->data, v->bytes);
    }
    for (int i = 0; i < t->n_tensors; i++) {
        const tensor *one = &t->tensor[i];
        size_t bytes = bytes_of(one);
        ek_buf_clear(&data);
        if (f.data.len + bytes > MAX_DATA) bytes = 0;
        while (data.len < bytes && one->bytes) {
            size_t left = bytes - data.len;
            ek_buf_add(&data, one->data, left < one->bytes ? left : one->bytes);
        }
        while (data.len < bytes) ek_buf_char(&data, (char)data.len);
        if (one->poke && data.len) data.data[one->poke_at % data.len] = (char)one->poke;
        gguf_tensor(&f, one->name, one->type, one->n_dims, one->dim, ek_buf_text(&data), data.len);
    }
    gguf_bytes(&f, out);
    gguf_fini(&f);
    ek_buf_fini(&data);
}

/* ------------------------------------------------------------------ models to begin with */

static void base_config(ek_config *c, int which)
{
    static const char *const name[] = {"T1", "T2", "T3", "T5", "T6", "T1", "Q2", "T5"};
    ek_config *target = ek_alloc(sizeof *target);
    ek_err err = ek_config_tiny(target, name[which]);
    *c = *target;
    if (which == 5) drafter_config(c, target, 11);
    if (which == 4) drafter_config(c, target, 0);
    if (which == 0 || which == 2) /* blocks of 32 */
        for (int i = c->hidden_size = 32; i < 32 + c->n_layers; i++) c->layer[i - 32].intermediate_size = 32;
    if (which == 6) { /* experts whose rows blocks of 64 divide */
        c->hidden_size = c->moe_intermediate_size = 64, c->n_experts = 3, c->vocab_size = 40;
        c->n_layers = c->first_shared = 3;
        for (int i = 0; i < c->n_layers; i++) c->layer[i].intermediate_size = 64;
    }
    if (which == 7) { /* blocks of 256 */
        c->hidden_size = c->layer[1].intermediate_size = 256;
        c->n_layers = c->first_shared = 4, c->vocab_size = 40;
    }
    if (err || ek_config_finish(c)) __builtin_trap();
    free(target);
}

/* Made once for each of the ways, and kept. */
static const ek_gguf *base(unsigned which, unsigned how)
{
    static ek_gguf *kept[BASES];
    static ek_buf bytes[BASES];
    static const uint32_t types[] = {GGUF_F32, GGUF_F16, GGUF_BF16, GGUF_Q4_0, GGUF_Q8_0, GGUF_NVFP4};
    which %= 8, how %= 8;
    const unsigned slot = which * 8 + how;
    if (kept[slot]) return kept[slot];
    ek_config *c = ek_alloc(sizeof *c);
    int32_t order[512];
    for (int i = 0; i < 512; i++) order[i] = i;
    base_config(c, (int)which);
    gguf_opts o = {.type = types[how % 6],
                   .scalars = how & 1,
                   .shared = how == 2,
                   .foreign = how == 2,
                   .head = how == 1,
                   .split_experts = how == 3,
                   .no_expert_scale = how == 4,
                   .gain = how == 5 ? 0.5f : 0,
                   .scheme = (gguf_scheme)(how % 3),
                   .order = order,
                   .centroid_of = how == 7};
    gguf_model(&bytes[slot], c, &o);
    if (gguf_of_memory(&kept[slot], (const uint8_t *)bytes[slot].data, bytes[slot].len, "base")) __builtin_trap();
    free(c);
    return kept[slot];
}

/* ------------------------------------------------------------------ edits */

static size_t kind_bytes(uint32_t kind)
{
    static const uint8_t size[EK_GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < EK_GGUF_KINDS ? size[kind] : 0;
}

/* A number in place of the value, or of one element of an array. */
static void set_value(tables *t, value *v, input *in, bool whole)
{
    size_t size = kind_bytes(v->kind), at = whole && v->count ? take(in) % v->count * size : 0;
    if (!size || v->bytes < size) return;
    uint8_t *data = make(t, v->bytes);
    memcpy(data, v->data, v->bytes);
    int64_t n = number(in);
    double d = fraction(in);
    float f = (float)d;
    if (v->kind == EK_GGUF_F32) memcpy(data + at, &f, sizeof f);
    else if (v->kind == EK_GGUF_F64) memcpy(data + at, &d, sizeof d);
    else memcpy(data + at, &n, size);
    v->data = data;
}

/* The same value in another type, array or not. */
static void retype_value(tables *t, value *v, input *in)
{
    const uint64_t count = take(in) % 40;
    v->kind = take(in) % (EK_GGUF_KINDS + 1), v->is_array = count > 0, v->count = count ? count : 1;
    size_t size = kind_bytes(v->kind), bytes = v->kind == EK_GGUF_STRING ? v->count * 8 : v->count * size;
    uint8_t *data = make(t, bytes);
    if (size) /* zeros are empty strings */
        for (size_t i = 0; i < bytes; i += size) data[i] = (uint8_t)take(in);
    v->data = data, v->bytes = bytes;
}

static void set_text(tables *t, value *v, input *in)
{
    uint64_t n = take(in) % 32;
    uint8_t *data = make(t, sizeof n + n);
    memcpy(data, &n, sizeof n);
    for (uint64_t i = 0; i < n; i++) data[sizeof n + i] = (uint8_t)take(in);
    v->kind = EK_GGUF_STRING, v->is_array = false, v->count = 1, v->data = data, v->bytes = sizeof n + n;
}

static void rename_tensor(tensor *t, input *in)
{
    static const char *const names[] = {"output.weight",
                                        "rope_freqs.weight",
                                        "blk.0.attn_v.weight",
                                        "blk.1.attn_k.weight",
                                        "blk.0.ffn_up.scale",
                                        "blk.0.ffn_gate_exps.weight",
                                        "blk.0.ffn_up_exps.scale",
                                        "blk.99999999999.ffn_up.weight",
                                        "v.blk.0.weight",
                                        "blk.0.rope_freqs.weight",
                                        "per_layer_model_proj.weight",
                                        "mtp_centroids.weight",
                                        "blk.0.ffn_up.input_scale",
                                        "blk.-1.attn_k.weight",
                                        ".weight",
                                        "blk.2.ffn_down_exps.scale"};
    strcpy(t->name, names[take(in) % 16]);
}

static void edit_tensor(tables *t, tensor *one, unsigned how, input *in)
{
    tensor *other = &t->tensor[take2(in) % (unsigned)t->n_tensors], kept = *one;
    const int d = (int)(take(in) % EK_GGUF_MAX_DIMS);
    switch (how) {
    case 0: *one = t->tensor[--t->n_tensors]; break;
    case 1: one->type = take(in) % 48; break;
    case 2: one->dim[d] = number(in); break;
    case 3: one->n_dims = d + 1; break;
    case 4:
        memcpy(one->name, other->name, KEY);
        memcpy(other->name, kept.name, KEY);
        break;
    case 5: rename_tensor(one, in); break;
    case 6:
        if (t->n_tensors == MAX_ROWS) break;
        t->tensor[t->n_tensors] = kept;
        rename_tensor(&t->tensor[t->n_tensors++], in);
        break;
    case 7: one->poke_at = take2(in), one->poke = (uint8_t)take(in); break;
    case 8:
        one->dim[d] = one->dim[(d + 1) % EK_GGUF_MAX_DIMS], one->dim[(d + 1) % EK_GGUF_MAX_DIMS] = kept.dim[d];
        break;
    default: { /* all matrices of blocks */
        const uint32_t type = take(in) % 48;
        for (int i = 0; i < t->n_tensors; i++)
            if (t->tensor[i].n_dims > 1) t->tensor[i].type = type;
    }
    }
}

static void edit_value(tables *t, value *v, unsigned how, input *in)
{
    const value kept = *v, *other = &t->value[take(in) % (unsigned)t->n_values];
    switch (how) {
    case 0: *v = t->value[--t->n_values]; break;
    case 1: set_value(t, v, in, false); break;
    case 2: set_value(t, v, in, true); break;
    case 3: retype_value(t, v, in); break;
    case 4: set_text(t, v, in); break;
    case 5: /* the value of another key */
        *v = *other;
        memcpy(v->key, kept.key, KEY);
        break;
    default: /* one more key of the architecture */
        if (t->n_values == MAX_ROWS) break;
        static const char *const keys[] = {"gemma4.rope.scaling.factor",  "gemma4.attention.value_length",
                                           "gemma4.rope.dimension_count", "general.alignment",
                                           "gemma4.vocab_size",           "tokenizer.ggml.suppress_tokens",
                                           "gemma4.expert_count",         "tokenizer.ggml.tokens"};
        t->value[t->n_values] = kept;
        strcpy(t->value[t->n_values++].key, keys[take(in) % 8]);
    }
}

static void edit(tables *t, input *in)
{
    for (int i = 0; i < MAX_EDITS && in->at < in->end && t->n_values && t->n_tensors; i++) {
        const unsigned how = take(in) % 17, at = take2(in);
        if (how < 10) edit_tensor(t, &t->tensor[at % (unsigned)t->n_tensors], how, in);
        else edit_value(t, &t->value[at % (unsigned)t->n_values], how - 10, in);
    }
}

/* ------------------------------------------------------------------ properties */

static ek_err refused(ek_err err, bool names)
{
    const char *said = ek_err_text();
    if (err && (!*said || strchr(said, '\n') || (names && !strstr(said, "m.gguf")))) __builtin_trap();
    return err;
}

static void check_rows(const ek_item *it, const uint8_t *file, size_t n, const float *ones, bool packed)
{
    const ek_weight_data *w = &it->data;
    const size_t row_bytes = ek_weight_row_bytes(w->type, w->k);
    const uint8_t *first = ek_weight_plane_row(w, 0, 0), *last = ek_weight_plane_row(w, 0, w->n - 1);
    if ((const float *)(const void *)first != ones && (first < file || last + row_bytes > file + n)) __builtin_trap();
    float *want = ek_alloc(sizeof *want * (size_t)w->k), *got = ek_alloc(sizeof *got * (size_t)w->k);
    for (int row = 0; row < w->n; row += row + 1 < w->n && row + 7 >= w->n ? w->n - 1 - row : 7) {
        ek_weight_row(w, row, 0, w->k, want);
        if (!it->matrix || !packed) continue;
        ek_linear_row(it->matrix, row, got);
        for (int i = 0; i < w->k; i++)
            if (want[i] != got[i] && isfinite(want[i])) __builtin_trap();
    }
    free(want), free(got);
}

static ek_err bind(ek_gguf_source *s, const ek_config *c, const uint8_t *file, size_t n)
{
    ek_weights *w = ek_alloc(sizeof *w);
    ek_items list = {0};
    ek_pack_opts o = {.limit = 1 << 28};
    ek_err err = refused(ek_items_bind(&list, w, c, &s->source), true);
    if (!err) err = refused(ek_items_plan(&list, w, &o), false);
    const bool packed = !err && w->block_bytes <= MAX_BLOCK && !refused(ek_items_pack(&list, w, &o), false);
    for (int i = 0; i < list.n && !err; i++) check_rows(&list.item[i], file, n, s->ones, packed);
    ek_items_fini(&list);
    ek_weights_fini(w);
    free(w);
    return err;
}

static void read_all(ek_gguf_source *s, const uint8_t *file, size_t n, bool edited)
{
    static ek_config c;
    ek_source_tokenizer tokenizer;
    ek_source_chat chat;
    if (refused(ek_source_config(&s->source, &c), true)) {
        if (!edited) __builtin_trap();
        return;
    }
    if (c.n_centroids && c.vocab_size <= MAX_WEIGHTS) {
        int32_t *ids = ek_alloc(sizeof *ids * (size_t)c.vocab_size);
        refused(ek_source_ids(&s->source, "masked_embedding.token_ordering", c.vocab_size, ids), true);
        free(ids);
    }
    if (bind(s, &c, file, n) && !edited) __builtin_trap();
    refused(ek_source_tokenizer_of(&s->source, &tokenizer), true);
    refused(ek_source_chat_of(&s->source, &chat), true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tables t;
    input in = {data, data + size};
    ek_buf bytes = {0};
    ek_gguf *g;
    ek_log_set(EK_LOG_ERROR);
    const unsigned which = take(&in), how = take(&in);
    read_tables(&t, base(which, how));
    edit(&t, &in);
    write_file(&t, &bytes);
    uint8_t *file = ek_alloc(bytes.len);
    memcpy(file, bytes.data, bytes.len);
    if (!refused(gguf_of_memory(&g, file, bytes.len, "m.gguf"), true)) {
        ek_source *s = ek_source_gguf_of(g);
        read_all((ek_gguf_source *)s, file, bytes.len, size > 2);
        ek_source_close(s);
    }
    for (int i = 0; i < t.n_made; i++) free(t.made[i]);
    free(file);
    ek_buf_fini(&bytes);
    return 0;
}
