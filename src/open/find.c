#include "open/open.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/name.h"

bool ek_model_is_name(const char *text)
{
    ek_hub_name name;
    if (access(text, F_OK) == 0 || (ek_model_is_file_name(text) && !strchr(text, ':'))) return false;
    return ek_hub_short_find(text) || ek_hub_name_parse(&name, text) == EK_OK;
}

/* If a folder has no file of a model, the error says so, not that its configuration is missing. */
static ek_err check_folder(const char *path)
{
    static const char *const ends[] = {".json", ".safetensors", ".gguf", ".model"};
    DIR *d = ek_is_dir(path) ? opendir(path) : NULL;
    bool any = !d;
    for (struct dirent *e; d && !any && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            size_t m = strlen(ends[i]);
            any = any || (n > m && !strcasecmp(e->d_name + n - m, ends[i]));
        }
    }
    if (d) closedir(d);
    if (any) return EK_OK;
    return ek_fail(EK_ENOTFOUND, "%s holds no model: neither config.json with safetensors nor a GGUF file", path);
}

/* Whether text is neither an existing path nor written like a path. */
static bool looks_like_word(const char *text)
{
    return access(text, F_OK) != 0 && !strchr(text, '/') && !ek_model_is_file_name(text);
}

static ek_err no_such_word(const char *text)
{
    ek_buf guess = {0};
    ek_hub_guess(&guess, text);
    const ek_err err = ek_fail(EK_ENOTFOUND, "%.80s%s", text, ek_buf_text(&guess));
    ek_buf_fini(&guess);
    return err;
}

bool ek_model_is_file_name(const char *text)
{
    static const char *const ends[] = {
        ".gguf",     ".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".onnx", ".ggml", ".task",
        ".litertlm", ".npz"};
    const size_t n = strlen(text);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n > m && !strcasecmp(text + n - m, ends[i])) return true;
    }
    return false;
}

ek_err ek_model_find(ek_buf *out, const char *text)
{
    ek_hub_name name;
    ek_hub_places places;
    if (!ek_model_is_name(text)) {
        ek_buf_str(out, text);
        return looks_like_word(text) ? no_such_word(text) : check_folder(text);
    }
    const ek_hub_short *as = ek_hub_short_find(text);
    EK_TRY(ek_hub_name_parse(&name, as ? as->model : text));
    ek_err err = ek_hub_places_init(&places, getenv);
    if (!err) err = ek_hub_find(out, places.cache, &name);
    if (err == EK_ENOTFOUND && as)
        err = ek_fail(err, "%s is %s, which is not here; `evenkeel pull %s` fetches it, about %.1f GB", as->name,
                      as->model, as->name, as->gigabytes);
    else if (err == EK_ENOTFOUND) err = ek_fail_in(err, "%.200s: there is no such path", text);
    ek_hub_places_fini(&places);
    return err;
}

/* Appends dir/tail without links and dots, if it is a folder. */
static bool found(ek_buf *out, const char *dir, const char *tail)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, tail);
    char *real = n > 0 && (size_t)n < sizeof path ? realpath(path, NULL) : NULL;
    bool is = real && ek_is_dir(real);
    if (is) ek_buf_str(out, real);
    free(real);
    return is;
}

ek_err ek_bundled_find(ek_buf *out)
{
    char self[PATH_MAX];
    if (ek_own_folder(self, sizeof self)) return ek_fail_in(EK_ENOTFOUND, "the bundled one cannot be looked for");
    /* PREFIX/bin/evenkeel or PREFIX/lib/libevenkeel.so, build/CONF in the source tree, the tree itself and the Python
     * package, PREFIX/lib/TRIPLET/libevenkeel.so. */
    static const char *const tails[] = {"../share/evenkeel/models/pocket", "../../models/pocket", "models/pocket",
                                        "../models/pocket", "../../share/evenkeel/models/pocket"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (found(out, self, tails[i])) return EK_OK;
    /* For a copy of the program outside its installation, if it is also installed. */
    if (found(out, "/usr/local/share", "evenkeel/models/pocket") || found(out, "/usr/share", "evenkeel/models/pocket"))
        return EK_OK;
    return ek_fail(
        EK_ENOTFOUND,
        "the bundled model is not beside the program, in %s/../share/evenkeel/models/pocket: `make install` puts "
        "both in place; of the tarball copy the whole folder, or link to the program",
        self);
}
