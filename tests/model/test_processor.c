/* How pictures and frames are prepared, from the files beside config.json: which of them counts, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "model/tower/source/tower_source.h"
#include "../support/files.h"

static const ek_patching usual = {16, 3};

typedef struct file {
    const char *name, *text;
} file;

static ek_err read(ek_processor *p, const file *files)
{
    char *dir = temp_dir();
    for (; files->name; files++) put_text(dir, files->name, files->text);
    ek_err err = ek_processor_read(p, dir, usual);
    remove_dir(dir);
    return err;
}

#define NESTED "processor_config.json"
#define OLD    "preprocessor_config.json"
#define VIDEO  "video_preprocessor_config.json"

static void the_files_that_transformers_reads_count(void **state)
{
    (void)state;
    static const struct {
        file files[4];
        int image, frame, frames;
    } c[] = {
        {{{0}}, 280, 70, 32},
        {{{NESTED, "{}"}}, 280, 70, 32},
        {{{NESTED, "{\"image_seq_length\": 70}"}}, 280, 70, 32},
        {{{NESTED, "{\"image_processor\": {\"max_soft_tokens\": 560}}"}}, 560, 70, 32},
        {{{NESTED,
           "{\"image_processor\": {\"max_soft_tokens\": 1120}, \"video_processor\": {\"max_soft_tokens\": 140, \"num_frames\": 8}}"}},
         1120,
         140,
         8},
        {{{OLD, "{\"max_soft_tokens\": 140}"}}, 140, 140, 32},
        {{{OLD, "{\"max_soft_tokens\": 140}"}, {VIDEO, "{\"max_soft_tokens\": 70}"}}, 140, 70, 32},
        {{{OLD, "{\"max_soft_tokens\": 140}"}, {NESTED, "{\"image_processor\": {\"max_soft_tokens\": 70}}"}},
         70,
         140,
         32},
        {{{OLD,
           "{\"max_soft_tokens\": null, \"size\": null, \"resample\": 3, \"do_normalize\": true, \"image_mean\": [0.0, 0, 0], "
           "\"image_std\": [1, 1.0, 1]}"}},
         280,
         70,
         32},
        {{{NESTED,
           "{\"image_processor\": {\"patch_size\": 16, \"pooling_kernel_size\": 3, \"rescale_factor\": 0.00392156862745098, "
           "\"do_normalize\": false, \"image_mean\": [0.5, 0.5, 0.5]}}"}},
         280,
         70,
         32},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        ek_processor p;
        if (read(&p, c[i].files)) fail_msg("%zu: %s", i, ek_err_text());
        assert_int_equal(p.image_tokens, c[i].image);
        assert_int_equal(p.frame_tokens, c[i].frame);
        assert_int_equal(p.frames, c[i].frames);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        ek_err err;
        const char *says;
    } c[] = {
        {NESTED, "{\"image_processor\": {\"max_soft_tokens\": 100}}", EK_EFORMAT,
         "processor_config.json: image_processor.max_soft_tokens is 100, must be 70, 140, 280, 560 or 1120"},
        {NESTED, "{\"image_processor\": {\"max_soft_tokens\": \"280\"}}", EK_EFORMAT,
         "image_processor.max_soft_tokens"},
        {NESTED, "{\"image_processor\": 3}", EK_EFORMAT, "processor_config.json: image_processor is not a JSON object"},
        {NESTED, "{\"video_processor\": {\"max_soft_tokens\": 71}}", EK_EFORMAT,
         "video_processor.max_soft_tokens is 71"},
        {NESTED, "{\"video_processor\": {\"num_frames\": 33}}", EK_EFORMAT, "video_processor.num_frames is 33"},
        {NESTED, "[]", EK_EFORMAT, "processor_config.json: is not a JSON object"},
        {OLD, "{", EK_EFORMAT, "preprocessor_config.json: is not a JSON object"},
        {OLD, "{\"patch_size\": 14}", EK_EFORMAT, "patches of 14 pixels"},
        {OLD, "{\"pooling_kernel_size\": 2}", EK_EFORMAT, "2 x 2 for a token"},
        {OLD, "{\"do_resize\": false}", EK_EUNSUPPORTED, "do_resize"},
        {OLD, "{\"resample\": 2}", EK_EUNSUPPORTED, "resample"},
        {OLD, "{\"do_rescale\": false}", EK_EUNSUPPORTED, "rescale_factor"},
        {OLD, "{\"rescale_factor\": 0.5}", EK_EUNSUPPORTED, "rescale_factor"},
        {OLD, "{\"do_normalize\": true, \"image_mean\": [0.5, 0.5, 0.5]}", EK_EUNSUPPORTED, "do_normalize"},
        {OLD, "{\"do_normalize\": true, \"image_std\": [\"1\"]}", EK_EUNSUPPORTED, "do_normalize"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        ek_processor p;
        const file files[] = {{c[i].name, c[i].text}, {0}};
        ek_err err = read(&p, files);
        if (err != c[i].err || !strstr(ek_err_text(), c[i].says) || strchr(ek_err_text(), '\n'))
            fail_msg("%s: %d, %s", c[i].text, err, err ? ek_err_text() : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_files_that_transformers_reads_count),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
