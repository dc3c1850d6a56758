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
#include "../tests/support/gguf_edit.h"
#include "../tests/support/gguf_memory.h"
#include "../tests/support/gguf_model.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/source/source_gguf.h"
#include "model/weights/weights.h"

enum { MAX_WEIGHTS = 1 << 18, MAX_BLOCK = 1 << 20, BASES = 64 };

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

static const gguf_edit_words words = {
    .name = {"output.weight", "rope_freqs.weight", "blk.0.attn_v.weight", "blk.1.attn_k.weight", "blk.0.ffn_up.scale",
             "blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.scale", "blk.99999999999.ffn_up.weight", "v.blk.0.weight",
             "blk.0.rope_freqs.weight", "per_layer_model_proj.weight", "mtp_centroids.weight",
             "blk.0.ffn_up.input_scale", "blk.-1.attn_k.weight", ".weight", "blk.2.ffn_down_exps.scale"},
    .key = {"gemma4.rope.scaling.factor", "gemma4.attention.value_length", "gemma4.rope.dimension_count",
            "general.alignment", "gemma4.vocab_size", "tokenizer.ggml.suppress_tokens", "gemma4.expert_count",
            "tokenizer.ggml.tokens"}};

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

static ek_err bind(ek_gguf_source *s, ek_config *c, const uint8_t *file, size_t n)
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
    static gguf_tables t;
    gguf_input in = {data, data + size};
    ek_buf bytes = {0};
    ek_gguf *g;
    ek_log_set(EK_LOG_ERROR);
    const unsigned which = gguf_take(&in), how = gguf_take(&in);
    gguf_tables_read(&t, base(which, how));
    gguf_tables_edit(&t, &in, &words);
    gguf_tables_write(&t, &bytes);
    uint8_t *file = ek_alloc(bytes.len);
    memcpy(file, bytes.data, bytes.len);
    if (!refused(gguf_of_memory(&g, file, bytes.len, "m.gguf"), true)) {
        ek_source *s = ek_source_gguf_of(g);
        read_all((ek_gguf_source *)s, file, bytes.len, size > 2);
        ek_source_close(s);
    }
    gguf_tables_fini(&t);
    free(file);
    ek_buf_fini(&bytes);
    return 0;
}
