#include "serve/api/model_card.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "text/json/json.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* Adds the file; false if there is none. */
static bool add_file(ek_model_card *card, const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return false;
    card->size += st.st_size;
    if (card->modified < st.st_mtime) card->modified = st.st_mtime;
    return true;
}

/* Adds all files of a folder with this ending. */
static void add_files(ek_model_card *card, const char *folder, const char *ending)
{
    DIR *d = opendir(folder);
    ek_buf path = {0};
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!ends_with(e->d_name, ending)) continue;
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "%s/%s", folder, e->d_name);
        add_file(card, path.data);
    }
    ek_buf_fini(&path);
    if (d) closedir(d);
}

static void look(ek_model_card *card, const char *path)
{
    card->format = "safetensors";
    if (!path) return;
    if (!add_file(card, path)) add_files(card, path, ".safetensors");
    if (card->size > 0 && !ends_with(path, ".gguf")) return;
    if (card->size == 0) add_files(card, path, ".gguf");
    if (card->size > 0) card->format = "gguf";
}

/* The part "w=…" of a numerics id. */
static char *weights_of(const char *numerics)
{
    const char *from = strstr(numerics, "w=");
    char *text = ek_strdup(from ? from + 2 : numerics);
    text[strcspn(text, " ")] = '\0';
    return text;
}

static void write_digest(ek_model_card *card, const char *numerics)
{
    ek_buf all = {0};
    ek_buf_fmt(&all, "%s %lld %llu %s", card->name, (long long)card->size, (unsigned long long)card->parameters,
               numerics);
    for (unsigned i = 0; i < 4; i++)
        snprintf(card->digest + 16 * i, 17, "%016llx", (unsigned long long)ek_hash64(i, all.data, all.len));
    ek_buf_fini(&all);
}

void ek_model_card_make(ek_model_card *card, const ek_model *model, const char *path, const char *name, int ctx_tokens)
{
    const char *numerics = ek_model_numerics_id(model);
    *card = (ek_model_card){.name = ek_strdup(name),
                            .weights = weights_of(numerics),
                            .ctx_tokens = ctx_tokens,
                            .config = ek_model_config(model),
                            .parameters = ek_model_parameters(ek_model_config(model))};
    look(card, path);
    if (card->modified == 0) card->modified = ek_unix_time();
    write_digest(card, numerics);
}

/* --- its names --- */

static void add_names(ek_model_card *card, const char *list)
{
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        char *name = ek_alloc(n + 1);
        memcpy(name, p, n);
        if (n == 0 || card->n_names == EK_SERVED_MAX || ek_model_card_is(card, name)) free(name);
        else card->names[card->n_names++] = name;
        p += n + (p[n] == ',');
    }
}

void ek_model_card_names(ek_model_card *card, const char *listed, const char *others)
{
    add_names(card, listed);
    card->n_listed = card->n_names;
    add_names(card, others);
}

/* The length of a name without the tag `latest`. */
static size_t untagged(const char *name)
{
    static const char tag[] = ":latest";
    size_t n = strlen(name), k = sizeof tag - 1;
    return n > k && !strcasecmp(name + n - k, tag) ? n - k : n;
}

static bool is_same(const char *a, const char *b)
{
    size_t n = untagged(a);
    return n == untagged(b) && !strncasecmp(a, b, n);
}

bool ek_model_card_is(const ek_model_card *card, const char *name)
{
    bool same = is_same(name, card->name);
    for (int i = 0; i < card->n_names && !same; i++) same = is_same(name, card->names[i]);
    return same;
}

ek_err ek_served_check(const char *names)
{
    int n_names = 0;
    for (const char *p = names;; p++) {
        size_t n = strcspn(p, ",");
        if (n == 0) return ek_fail(EK_EINVAL, "a name between commas is empty");
        if (n > EK_SERVED_BYTES)
            return ek_fail(EK_EINVAL, "a name has %zu bytes, at most %d are allowed", n, EK_SERVED_BYTES);
        if (++n_names > EK_SERVED_MAX) return ek_fail(EK_EINVAL, "more than %d names", EK_SERVED_MAX);
        p += n;
        if (!*p) return EK_OK;
    }
}

void ek_model_card_fini(ek_model_card *card)
{
    for (int i = 0; i < card->n_names; i++) free(card->names[i]);
    free(card->name);
    free(card->weights);
    *card = (ek_model_card){0};
}

/* --- the fingerprint --- */

void ek_fingerprint_write(ek_buf *out, char sha256[EK_FINGERPRINT], const char *digest, const char *numerics, int ctx,
                          const ek_config *config)
{
    ek_buf members = {0};
    ek_buf_fmt(&members, "\"model_sha256\":\"%s\",\"numerics\":", digest);
    ek_json_quote(&members, numerics, strlen(numerics));
    ek_buf_fmt(&members,
               ",\"program\":\"" EK_VERSION "\",\"context\":%d,\"sampling\":{\"temperature\":%.9g,\"top_p\":%.9g,"
               "\"top_k\":%d}",
               ctx, (double)config->temperature, (double)config->top_p, config->top_k);
    ek_sha256_hex(sha256, ek_buf_text(&members), members.len);
    ek_buf_fmt(out, "{\"object\":\"fingerprint\",%s,\"sha256\":\"%s\"}", ek_buf_text(&members), sha256);
    ek_buf_fini(&members);
}
