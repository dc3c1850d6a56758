#include "model/tower/source/tower_source.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "media/limits.h"
#include "model/config/setting.h"

enum { JSON_LIMIT = 1 << 20, BICUBIC = 3 };

void ek_processor_default(ek_processor *out)
{
    *out = (ek_processor){EK_BUDGET_IMAGE, EK_BUDGET_FRAME, EK_MEDIA_MAX_FRAMES};
}

/* NULL: there is no such file. */
static ek_err read_file(json_t **out, const char *folder, const char *name)
{
    ek_buf path = {0}, text = {0};
    json_error_t why;
    *out = NULL;
    ek_buf_fmt(&path, "%s/%s", folder, name);
    ek_err err = ek_is_file(path.data) ? ek_file_read(&text, path.data, JSON_LIMIT) : EK_ENOTFOUND;
    if (!err) {
        *out = json_loads(ek_buf_text(&text), JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(*out)) err = ek_fail(EK_EFORMAT, "%s: is not a JSON object", name);
    }
    if (err && *out) json_decref(*out), *out = NULL;
    ek_buf_fini(&path);
    ek_buf_fini(&text);
    return err == EK_ENOTFOUND ? EK_OK : err;
}

static ek_err other_way(const ek_settings *f, const char *key, const char *what)
{
    return ek_fail(EK_EUNSUPPORTED, "%s: %s%s asks for %s, and pictures are not prepared so", f->file,
                   f->in ? f->in : "", key, what);
}

static ek_err check_size(const ek_settings *f, ek_patching patching)
{
    int side, pool;
    EK_TRY(ek_setting_may_int(&side, f, "patch_size", patching.side, 1, EK_MAX_CELL));
    EK_TRY(ek_setting_may_int(&pool, f, "pooling_kernel_size", patching.pool, 1, EK_MAX_CELL));
    if (side == patching.side && pool == patching.pool) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: patches of %d pixels, %d x %d for a token; config.json has %d pixels and %d x %d",
                   f->file, side, pool, pool, patching.side, patching.pool, patching.pool);
}

/* Whether each number of a list is `want`; an absent list counts as such. */
static bool all_are(const ek_settings *f, const char *key, double want)
{
    const json_t *list = ek_setting(f, key), *v;
    size_t i;
    if (!list) return true;
    if (json_is_number(list)) return json_number_value(list) == want;
    json_array_foreach((json_t *)(uintptr_t)list, i, v) if (json_number_value(v) != want) return false;
    return json_is_array(list);
}

static ek_err check_values(const ek_settings *f)
{
    bool resize, rescale, normalize;
    double factor;
    int resample;
    EK_TRY(ek_setting_may_bool(&resize, f, "do_resize", true));
    if (!resize) return other_way(f, "do_resize", "pictures as they are");
    EK_TRY(ek_setting_may_int(&resample, f, "resample", BICUBIC, 0, 5));
    if (resample != BICUBIC) return other_way(f, "resample", "another resize than bicubic, which is 3");
    EK_TRY(ek_setting_may_bool(&rescale, f, "do_rescale", true));
    EK_TRY(ek_setting_may_number(&factor, f, "rescale_factor", 1.0 / 255, -1e9, 1e9));
    if (!rescale || fabs(factor - 1.0 / 255) > 1e-9) return other_way(f, "rescale_factor", "another scale than 1/255");
    EK_TRY(ek_setting_may_bool(&normalize, f, "do_normalize", false));
    if (normalize && !(all_are(f, "image_mean", 0) && all_are(f, "image_std", 1)))
        return other_way(f, "do_normalize", "another mean than 0, or another deviation than 1");
    return EK_OK;
}

static ek_err read_budget(int *out, const ek_settings *f, int absent)
{
    EK_TRY(ek_setting_may_int(out, f, "max_soft_tokens", absent, 1, 1 << 20));
    if (ek_budget_known(*out)) return EK_OK;
    return ek_setting_wrong(f, "max_soft_tokens", ek_setting(f, "max_soft_tokens"), "70, 140, 280, 560 or 1120");
}

static ek_err read_image(ek_processor *out, const ek_settings *f, ek_patching patching)
{
    EK_TRY(check_size(f, patching));
    EK_TRY(check_values(f));
    return read_budget(&out->image_tokens, f, out->image_tokens);
}

static ek_err read_video(ek_processor *out, const ek_settings *f, ek_patching patching)
{
    EK_TRY(check_size(f, patching));
    EK_TRY(check_values(f));
    EK_TRY(ek_setting_may_int(&out->frames, f, "num_frames", out->frames, 1, EK_MEDIA_MAX_FRAMES));
    return read_budget(&out->frame_tokens, f, out->frame_tokens);
}

/* In order of precedence for videos; for images only the last one counts. */
enum { NESTED, VIDEOS, IMAGES, FILES };
static const char *const names[FILES] = {"processor_config.json", "video_preprocessor_config.json",
                                         "preprocessor_config.json"};

/* The settings for one kind: the object `in` (dotted: with a dot) of the first file, else the file `own`, or if it is
 * missing, the last one. */
static ek_settings choose(json_t *const file[FILES], const char *in, const char *dotted, int own)
{
    const json_t *object = json_object_get(file[NESTED], in);
    if (object) return (ek_settings){.file = names[NESTED], .in = dotted, .object = object};
    if (!file[own]) own = IMAGES;
    return (ek_settings){.file = names[own], .object = file[own]};
}

static ek_err check_object(const ek_settings *f)
{
    if (!f->object || json_is_object(f->object)) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: %.*s is not a JSON object", f->file, (int)strlen(f->in) - 1, f->in);
}

static ek_err read_all(ek_processor *out, json_t *file[FILES], const char *folder, ek_patching patching)
{
    for (int i = 0; i < FILES; i++) EK_TRY(read_file(&file[i], folder, names[i]));
    const ek_settings image = choose(file, "image_processor", "image_processor.", IMAGES);
    const ek_settings video = choose(file, "video_processor", "video_processor.", VIDEOS);
    EK_TRY(check_object(&image));
    EK_TRY(check_object(&video));
    EK_TRY(read_image(out, &image, patching));
    return read_video(out, &video, patching);
}

ek_err ek_processor_read(ek_processor *out, const char *folder, ek_patching patching)
{
    json_t *file[FILES] = {NULL};
    ek_processor_default(out);
    const ek_err err = read_all(out, file, folder, patching);
    for (int i = 0; i < FILES; i++) json_decref(file[i]);
    return err ? ek_fail_in(err, "%s", folder) : EK_OK;
}
