/* Tensors of towers that nothing reads are refused by name: leaving a bias or an adapter aside unseen gives features
 * that the file's author never saw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../support/files.h"
#include "../support/safetensors.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "model/tower/tower.h"
#include "tensor/checkpoint.h"

#define POCKET "models/pocket"

static void copy(const char *dir, const char *name)
{
    ek_buf b = {0};
    char path[300];
    snprintf(path, sizeof path, POCKET "/%s", name);
    assert_int_equal(ek_file_read(&b, path, 1 << 24), EK_OK);
    put_file(dir, name, b.data, b.len);
    ek_buf_fini(&b);
}

/* The towers of the bundled model with one tensor more. */
static ek_err open_with(const char *extra)
{
    static const uint8_t zeros[16];
    const ek_towers_opts o = {.cpu = ek_cpu_detect()};
    char *dir = temp_dir();
    st_file f = {0};
    ek_checkpoint *c;
    ek_towers *t;
    copy(dir, "config.json"), copy(dir, "processor_config.json");
    assert_int_equal(ek_checkpoint_open(&c, POCKET), EK_OK);
    for (int i = 0; i < ek_checkpoint_count(c); i++) {
        const ek_tensor *x = ek_checkpoint_at(c, i);
        st_add(&f, x->name, ek_dtype_name(x->dtype), x->n_dims, x->dim, x->data, x->bytes);
    }
    if (extra) st_add(&f, extra, "BF16", 1, (const int64_t[]){8}, zeros, sizeof zeros);
    st_save(&f, dir, "model.safetensors");
    ek_checkpoint_close(c);
    const ek_err err = ek_towers_open(&t, dir, &o);
    if (!err) ek_towers_close(t);
    remove_dir(dir);
    return err;
}

static void what_nothing_reads_is_refused(void **state)
{
    (void)state;
    static const char *const extra[] = {"model.vision_tower.encoder.layers.0.mlp.up_proj.linear.bias",
                                        "model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_A.weight",
                                        "model.vision_tower.encoder.layers.99.self_attn.q_proj.linear.weight",
                                        "model.embed_vision.embedding_projection.bias"};
    assert_int_equal(open_with(NULL), EK_OK);
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        assert_int_equal(open_with(extra[i]), EK_EFORMAT);
        if (!strstr(ek_err_text(), extra[i])) fail_msg("%s", ek_err_text());
    }
}

static void what_belongs_elsewhere_is_left_aside(void **state)
{
    (void)state;
    assert_int_equal(open_with("model.audio_tower.layers.0.attn.q_proj.bias"), EK_OK); /* it has no ears */
    assert_int_equal(open_with("model.vision_tower.encoder.layers.0.mlp.up_proj.input_scale"), EK_OK);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nothing_reads_is_refused),
        cmocka_unit_test(what_belongs_elsewhere_is_left_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
