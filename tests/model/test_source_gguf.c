/* Models in GGUF files: the same configuration and the same bits as from a folder of the same values, in the ways that
 * programs write them; and what is refused. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/drafter.h"
#include "../support/err_name.h"
#include "../support/gguf_model.h"
#include "../support/hashed.h"
#include "../support/pages.h"
#include "../support/same_model.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "model/weights/digest.h"
#include "model/weights/weights.h"
#include "tensor/dtype.h"

enum { TOKENS = 40 };

static ek_config config;

static ek_config *tiny(const char *name)
{
    assert_int_equal(ek_config_tiny(&config, name), EK_OK);
    return &config;
}

static ek_model_opts opts(bool exact)
{
    return (ek_model_opts){.cpu = ek_cpu_detect(), .exact = exact};
}

static const char *in(const char *dir, const char *name)
{
    static char path[2][300];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

/* The logits of some tokens; free them. */
static float *logits(const char *path, bool exact, const ek_config *want)
{
    ek_model *m;
    ek_model_opts o = opts(exact);
    if (ek_model_open(&m, path, &o)) fail_msg("%s", ek_err_text());
    if (want) same_config(ek_model_config(m), want);
    int vocab = ek_model_config(m)->vocab_size;
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)(hashed_bits("ids", (uint64_t)i) % (uint64_t)vocab);
    float *z = ek_alloc(sizeof *z * (size_t)(TOKENS * vocab));
    assert_int_equal(run_tokens(m, ids, TOKENS, NULL, z), EK_OK);
    ek_model_close(m);
    return z;
}

/* name with these options: the bits of the folder that was written beside it. */
static void compare(const char *name, const gguf_opts *o, bool exact)
{
    ek_config *c = tiny(name);
    char *dir = temp_dir(), *hf = temp_dir();
    write_gguf(dir, o->parts > 1 ? "m" : "m.gguf", c, o, hf);
    float *want = logits(hf, exact, c), *got = logits(dir, exact, c);
    for (int i = 0; i < TOKENS * c->vocab_size; i++)
        if (ek_f32_bits(want[i]) != ek_f32_bits(got[i]))
            fail_msg("%s type %u: logit %d is %a, of the folder %a", name, o->type, i, (double)got[i], (double)want[i]);
    free(want), free(got);
    remove_dir(dir), remove_dir(hf);
}

static void test_float_types(void **state)
{
    (void)state;
    static const char *const names[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "Q1", "Q2", "Q3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        compare(names[i], &(gguf_opts){.type = GGUF_F32}, false);
        compare(names[i], &(gguf_opts){.type = GGUF_BF16}, true);
        compare(names[i], &(gguf_opts){.type = GGUF_F16}, true);
    }
}

static void test_quantised_types(void **state)
{
    (void)state;
    static const char *const names[] = {"Q1", "Q2", "Q3", "T6"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        compare(names[i], &(gguf_opts){.type = GGUF_Q4_0}, true);
        compare(names[i], &(gguf_opts){.type = GGUF_Q8_0}, true);
        compare(names[i], &(gguf_opts){.type = GGUF_NVFP4}, true);
        compare(names[i], &(gguf_opts){.type = GGUF_NVFP4, .gain = 0.03125f}, true);
    }
}

/* What programs do differently gives the same model. */
static void test_ways_of_writing(void **state)
{
    (void)state;
    compare("Q1", &(gguf_opts){.scalars = true, .shared = true}, false);
    compare("T6", &(gguf_opts){.shared = true, .foreign = true, .split_experts = true}, false);
    compare("T3", &(gguf_opts){.scalars = true, .period = true, .head = 1}, false);
    compare("Q2", &(gguf_opts){.scalars = true, .no_expert_scale = true, .type = GGUF_BF16}, true);
    compare("T2", &(gguf_opts){.split_experts = true, .no_expert_scale = true}, false);
    compare("T1", &(gguf_opts){.parts = 3}, false);
    compare("T2", &(gguf_opts){.parts = 4, .split_experts = true}, false);
    compare("T3", &(gguf_opts){.skip_key = "final_logit_softcapping"}, false); /* 30, of every release */
    compare("T4", &(gguf_opts){.skip_key = "attention.key_length_swa"}, false);
}

/* ------------------------------------------------------------------ refusals */

static void refused_path(const char *path, ek_err want, const char *says)
{
    ek_model *m = NULL;
    ek_model_opts o = opts(false);
    ek_err err = ek_model_open(&m, path, &o);
    if (err != want || !strstr(ek_err_text(), says))
        fail_msg("%s \"%s\", wanted %s \"%s\"", err_name(err), ek_err_text(), err_name(want), says);
    assert_null(m);
}

static void refused(const char *name, const gguf_opts *o, ek_err want, const char *says)
{
    char *dir = temp_dir();
    write_gguf(dir, "m.gguf", tiny(name), o, NULL);
    refused_path(in(dir, "m.gguf"), want, says);
    assert_non_null(strstr(ek_err_text(), "m.gguf"));
    remove_dir(dir);
}

static void add_bias(gguf_file *f)
{
    gguf_tensor(f, "blk.0.attn_q.bias", 0, 1, (const int64_t[]){8}, (const float[8]){0}, 32);
}

static void add_scaling(gguf_file *f)
{
    gguf_f32(f, "gemma4.rope.scaling.factor", 8);
}

static void add_dimensions(gguf_file *f)
{
    gguf_u32(f, "gemma4.rope.dimension_count", 8);
}

static void add_freqs(gguf_file *f)
{
    static const float v[16] = {1, 1, 2, 1e30f};
    gguf_tensor(f, "rope_freqs.weight", 0, 1, (const int64_t[]){16}, v, sizeof v);
}

static void add_short_pattern(gguf_file *f)
{
    gguf_array(f, "gemma4.attention.sliding_window_pattern", 7, 2, "\1\0", 2);
}

static void add_huge_window(gguf_file *f)
{
    gguf_u32(f, "gemma4.attention.sliding_window", UINT32_MAX);
}

static void add_strange_type(gguf_file *f)
{
    static const uint8_t zeros[4096];
    gguf_tensor(f, "blk.0.attn_q.weight", 16, 2, (const int64_t[]){256, 1}, zeros, 66);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("T1", &(gguf_opts){.skip = "blk.2.ffn_up.weight"}, EK_EFORMAT, "tensor blk.2.ffn_up.weight is missing");
    refused("T1", &(gguf_opts){.skip = "token_embd.weight"}, EK_EFORMAT, "token_embd.weight is missing");
    refused("T1", &(gguf_opts){.skip = "rope_freqs.weight"}, EK_EFORMAT, "rope_freqs.weight is missing");
    refused("T1", &(gguf_opts){.skip = "blk.0.attn_v.weight"}, EK_EFORMAT, "blk.0.attn_v.weight is missing");
    refused("T1", &(gguf_opts){.skip_key = "block_count"}, EK_EFORMAT, "metadata gemma4.block_count is missing");
    refused("T1", &(gguf_opts){.skip_key = "embedding_length"}, EK_EFORMAT, "gemma4.embedding_length is missing");
    refused("T1", &(gguf_opts){.skip_key = "rope.freq_base"}, EK_EFORMAT, "gemma4.rope.freq_base is missing");
    refused("T1", &(gguf_opts){.skip_key = "attention.sliding_window"}, EK_EFORMAT, "sliding_window is missing");
    refused("T1", &(gguf_opts){.skip_key = "attention.sliding_window", .extra = add_huge_window}, EK_EFORMAT,
            "must be a whole number from 0 to 268435456");
    refused("T1", &(gguf_opts){.skip_key = "attention.sliding_window_pattern", .extra = add_short_pattern}, EK_EFORMAT,
            "has 2 values for 6 layers");
    refused("T1", &(gguf_opts){.extra = add_bias}, EK_EFORMAT, "blk.0.attn_q.bias is no part of the model");
    refused("T1", &(gguf_opts){.extra = add_scaling}, EK_EUNSUPPORTED, "rope.scaling.factor is 8");
    refused("T1", &(gguf_opts){.extra = add_dimensions}, EK_EUNSUPPORTED, "rope.dimension_count is 8, heads have 32");
    refused("T1", &(gguf_opts){.skip = "rope_freqs.weight", .extra = add_freqs}, EK_EUNSUPPORTED,
            "rope_freqs.weight has 2 at 2, behind 2 times 1");
    refused("T1", &(gguf_opts){.skip = "blk.0.attn_q.weight", .extra = add_strange_type}, EK_EFORMAT,
            "has 1 x 1 x 1 x 256 weights, the metadata needs 1 x 64 x 64");
    gguf_file f = {0};
    char *dir = temp_dir();
    gguf_text(&f, "general.architecture", "llama");
    gguf_save(&f, dir, "llama.gguf");
    refused_path(in(dir, "llama.gguf"), EK_EUNSUPPORTED, "general.architecture is llama; gemma4 can be run");
    gguf_text(&f, "general.architecture", "clip");
    gguf_save(&f, dir, "clip.gguf");
    refused_path(in(dir, "clip.gguf"), EK_EUNSUPPORTED, "an mmproj file");
    gguf_save(&f, dir, "none.gguf");
    refused_path(in(dir, "none.gguf"), EK_EUNSUPPORTED, "general.architecture is missing");
    remove_dir(dir);
}

static void add_iq2(gguf_file *f)
{
    static const uint8_t zeros[66 * 192];
    gguf_tensor(f, "blk.0.ffn_down.weight", 16, 2, (const int64_t[]){256, 128}, zeros, 66 * 128);
}

static void add_unknown(gguf_file *f)
{
    gguf_tensor(f, "blk.0.ffn_down.weight", 99, 2, (const int64_t[]){256, 128}, NULL, 0);
}

/* A type that cannot be run is named with its tensor. */
static void test_unsupported_types(void **state)
{
    (void)state;
    static const struct {
        void (*add)(gguf_file *f);
        const char *says;
    } types[] = {{add_iq2, "tensor blk.0.ffn_down.weight has type iq2_xxs, which cannot be run"},
                 {add_unknown, "tensor blk.0.ffn_down.weight has type number 99, which is not known"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ek_config *c = tiny("Q1");
        char *dir = temp_dir();
        for (int l = 0; l < c->n_layers; l++) c->layer[l].intermediate_size = 256;
        write_gguf(dir, "m.gguf", c, &(gguf_opts){.skip = "blk.0.ffn_down.weight", .extra = types[i].add}, NULL);
        refused_path(in(dir, "m.gguf"), EK_EUNSUPPORTED, types[i].says);
        remove_dir(dir);
    }
}

/* ------------------------------------------------------------------ which file */

static void test_folders(void **state)
{
    (void)state;
    ek_config *c = tiny("T5");
    char *dir = temp_dir(), path[300], digest[3][EK_MODEL_DIGEST];
    ek_source *s;
    write_gguf(dir, "model-f32.gguf", c, NULL, NULL);
    put_file(dir, "mmproj-model.gguf", "GGUF", 4);
    put_file(dir, "imatrix.gguf", "GGUF", 4);
    put_text(dir, "config.json", "{}"); /* many repositories of GGUF files have it */
    free(logits(dir, false, c));
    assert_int_equal(ek_source_open(&s, dir), EK_OK);
    assert_string_equal(s->ops->kind, "GGUF");
    ek_source_close(s);
    assert_int_equal(ek_model_digest(digest[0], dir, NULL), EK_OK);
    assert_int_equal(ek_model_digest(digest[1], in(dir, "model-f32.gguf"), NULL), EK_OK);
    assert_string_equal(digest[0], digest[1]);
    write_gguf(dir, "split", c, &(gguf_opts){.parts = 2}, NULL);
    refused_path(dir, EK_EINVAL, "holds 2 models, name one of them: model-f32.gguf, split-00001-of-00002.gguf");
    for (int part = 1; part <= 2; part++) {
        snprintf(path, sizeof path, "%s/split-%05d-of-00002.gguf", dir, part);
        free(logits(path, false, c));
        assert_int_equal(ek_model_digest(digest[part], path, NULL), EK_OK);
    }
    assert_string_equal(digest[1], digest[2]);
    assert_string_not_equal(digest[0], digest[1]);
    remove(path);
    refused_path(in(dir, "split-00001-of-00002.gguf"), EK_ENOTFOUND, "1 of its 2 parts are missing");
    assert_int_equal(ek_model_digest(digest[1], in(dir, "split-00001-of-00002.gguf"), NULL), EK_ENOTFOUND);
    put_file(dir, "model.safetensors", "", 0); /* then it is a folder of safetensors */
    assert_int_equal(ek_source_open(&s, dir), EK_OK);
    assert_string_equal(s->ops->kind, "safetensors");
    ek_source_close(s);
    remove_dir(dir);
}

/* ------------------------------------------------------------------ drafters */

static void test_drafters(void **state)
{
    (void)state;
    ek_config *target = ek_alloc(sizeof *target), *c = ek_alloc(sizeof *c);
    assert_int_equal(ek_config_tiny(target, "T1"), EK_OK);
    int vocab = target->vocab_size, centroids = 11, each = vocab / centroids;
    int32_t *order = ek_alloc(sizeof *order * (size_t)vocab), *ids = ek_alloc(sizeof *ids * (size_t)vocab);
    for (int i = 0; i < vocab; i++) order[i] = i * 5 % vocab;
    for (int how = 0; how < 12; how++) {
        char *dir = temp_dir(), *hf = temp_dir();
        gguf_opts o = {.scheme = (gguf_scheme)(how % 3), .order = order, .centroid_of = how >= 9};
        bool ordered = how >= 6;
        drafter_config(c, target, ordered ? centroids : 0);
        if (how >= 3 && how < 6) { /* what the file leaves out, shapes and the releases tell */
            static const char *const backbone[] = {"embedding_length_out", "backbone_embedding_length",
                                                   "n_embd_backbone"};
            o.skip_key = backbone[how % 3], o.skip = "rope_freqs.weight";
        }
        write_gguf(dir, "drafter.gguf", c, &o, hf);
        same_model(hf, in(dir, "drafter.gguf"), ids);
        for (int i = 0; ordered && i < vocab; i++) /* within a centroid the order says nothing */
            if (!o.centroid_of) assert_int_equal(ids[i], order[i]);
            else {
                bool found = false;
                for (int j = i / each * each; j < (i / each + 1) * each; j++) found |= order[j] == ids[i];
                assert_true(found);
            }
        refused_path(in(dir, "drafter.gguf"), EK_EUNSUPPORTED, "is a drafter: it takes --drafter");
        remove_dir(dir), remove_dir(hf);
    }
    free(order), free(ids), free(target), free(c);
}

/* ------------------------------------------------------------------ tokens */

static void add_tokens(gguf_file *f)
{
    static const char *const text[] = {"<pad>", "<eos>", "<bos>", "x", "<turn|>", "<|tool_response>"};
    static const int32_t quiet[] = {7, 8, 7, -1, 1000};
    ek_buf b = {0};
    for (int i = 0; i < 6; i++) gguf_string(&b, text[i], strlen(text[i]));
    gguf_array(f, "tokenizer.ggml.tokens", 8, 6, b.data, b.len);
    ek_buf_fini(&b);
    gguf_u32(f, "tokenizer.ggml.eos_token_id", 3);
    gguf_u32(f, "tokenizer.ggml.eot_token_id", 4);
    gguf_u32(f, "tokenizer.ggml.eom_token_id", UINT32_MAX);
    gguf_u32(f, "tokenizer.ggml.bos_token_id", 6);
    gguf_array(f, "tokenizer.ggml.suppress_tokens", 5, 5, quiet, sizeof quiet);
    gguf_f32(f, "general.sampling.temp", 0.5f);
    gguf_u32(f, "general.sampling.top_k", 20);
}

static void test_tokens(void **state)
{
    (void)state;
    static const int32_t stop[] = {3, 4, 1, 5}, quiet[] = {7, 8};
    ek_config *c = tiny("T5"), read;
    for (int with = 0; with < 2; with++) {
        char *dir = temp_dir();
        ek_source *s;
        write_gguf(dir, "m.gguf", c, &(gguf_opts){.extra = with ? add_tokens : NULL}, NULL);
        assert_int_equal(ek_source_open(&s, in(dir, "m.gguf")), EK_OK);
        assert_int_equal(ek_source_config(s, &read), EK_OK);
        assert_int_equal(read.n_stop, with ? 4 : 0);
        if (with) assert_memory_equal(read.stop, stop, sizeof stop);
        assert_int_equal(read.n_suppress, with ? 2 : 0);
        if (with) assert_memory_equal(read.suppress, quiet, sizeof quiet);
        assert_int_equal(read.bos, with ? 6 : 2);
        assert_true(read.temperature == (with ? 0.5f : 1) && read.top_p == 0.95f);
        assert_int_equal(read.top_k, with ? 20 : 64);
        ek_source_close(s);
        remove_dir(dir);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_types),       cmocka_unit_test(test_quantised_types),
        cmocka_unit_test(test_ways_of_writing),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unsupported_types), cmocka_unit_test(test_folders),
        cmocka_unit_test(test_drafters),          cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
