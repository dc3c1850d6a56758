/* A reply of the Hub's API from bytes, and a model's name. Properties: no accepted file lies outside the folder that it
 * is put into, none is listed twice, every blob has a name of a hash; what is chosen is among the files, and choosing
 * what was chosen by its path gives it again; an accepted name is written as it was read. */
#include <stdint.h>
#include <string.h>

#include "hub/cache.h"
#include "hub/name.h"

/* The depth of a path never goes below its folder, however dots are read. */
static void check_path(const char *path)
{
    int depth = 0;
    if (*path == '/' || !*path) __builtin_trap();
    for (const char *p = path; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.')) continue;
        depth += n == 2 && p[0] == '.' && p[1] == '.' ? -1 : 1;
        if (depth < 1) __builtin_trap();
    }
}

static void check_choice(ek_hub_files *f, const char *which)
{
    const char *main, *again;
    if (ek_hub_choose(f, "a/b", which, &main)) return;
    int wanted = 0, same = 0;
    for (int i = 0; i < f->n; i++) wanted += f->v[i].wanted;
    if (wanted == 0) __builtin_trap();
    if (!main) return;
    const ek_hub_file *found = ek_hub_files_find(f, main);
    if (!found || !found->wanted) __builtin_trap();
    if (ek_hub_choose(f, "a/b", main, &again) || strcmp(again, main) != 0) __builtin_trap();
    for (int i = 0; i < f->n; i++) same += f->v[i].wanted;
    if (same != wanted) __builtin_trap();
}

static void check_name(const char *text)
{
    ek_hub_name n;
    ek_buf again = {0};
    if (ek_hub_name_parse(&n, text)) return;
    ek_hub_name_text(&again, &n);
    if (strcmp(ek_buf_text(&again), text) != 0) __builtin_trap();
    check_path(n.revision);
    if (*n.file) check_path(n.file);
    ek_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const which[] = {"", "Q4_K_M", "BF16", "m.gguf"};
    ek_hub_files f;
    ek_buf text = {0};
    ek_buf_add(&text, data, n);
    check_name(ek_buf_text(&text));
    ek_buf_fini(&text);
    if (ek_hub_files_parse(&f, (const char *)data, n)) return 0;
    if (!ek_hub_is_commit(f.commit)) __builtin_trap();
    for (int i = 0; i < f.n; i++) {
        check_path(f.v[i].path);
        if (!ek_hub_is_hash(f.v[i].hash) || f.v[i].size < 0) __builtin_trap();
        if (i && strcmp(f.v[i - 1].path, f.v[i].path) >= 0) __builtin_trap();
    }
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) check_choice(&f, which[i]);
    ek_hub_files_fini(&f);
    return 0;
}
