#include "hub/client.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/file.h"

/* The first of the variables, up to NULL, that is set and not empty. */
static const char *first_of(ek_hub_env *env, const char *const *names)
{
    for (; *names; names++) {
        const char *v = env(*names);
        if (v && *v) return v;
    }
    return NULL;
}

static char *joined(const char *dir, const char *tail)
{
    ek_buf b = {0};
    ek_buf_fmt(&b, "%s/%s", dir, tail);
    return b.data;
}

/* A leading ~ is the home folder, as in Hugging Face's tools. */
static char *expanded(const char *path, ek_hub_env *env)
{
    const char *home = env("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home) return joined(home, path[1] ? path + 2 : "");
    return ek_strdup(path);
}

static ek_err find_home(char **out, ek_hub_env *env)
{
    const char *set = first_of(env, (const char *const[]){"HF_HOME", NULL});
    const char *xdg = first_of(env, (const char *const[]){"XDG_CACHE_HOME", NULL});
    const char *home = first_of(env, (const char *const[]){"HOME", NULL});
    if (set) *out = expanded(set, env);
    else if (xdg) *out = joined(xdg, "huggingface");
    else if (home) *out = joined(home, ".cache/huggingface");
    else return ek_fail(EK_EINVAL, "no HF_HOME and no HOME: where is the cache of models?");
    return EK_OK;
}

static bool is_true(const char *v)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; v && i < sizeof yes / sizeof *yes; i++)
        if (!strcasecmp(v, yes[i])) return true;
    return false;
}

static ek_err set_endpoint(ek_hub_places *p, ek_hub_env *env)
{
    const char *v = first_of(env, (const char *const[]){"HF_ENDPOINT", NULL});
    p->endpoint = ek_strdup(v ? v : "https://huggingface.co");
    for (size_t n = strlen(p->endpoint); n && p->endpoint[n - 1] == '/';) p->endpoint[--n] = '\0';
    const char *host = !strncasecmp(p->endpoint, "https://", 8)  ? p->endpoint + 8
                       : !strncasecmp(p->endpoint, "http://", 7) ? p->endpoint + 7
                                                                 : "";
    if (!*host || strpbrk(host, " ?#@\t\r\n"))
        return ek_fail(EK_EINVAL, "HF_ENDPOINT %.200s: an address like https://huggingface.co is needed", p->endpoint);
    return EK_OK;
}

/* Blanks around a token are dropped. A token with other blanks cannot be sent. */
static ek_err set_token(ek_hub_places *p, const char *text, const char *from)
{
    static const char blank[] = " \t\r\n";
    text += strspn(text, blank);
    size_t n = strlen(text);
    while (n && strchr(blank, text[n - 1])) n--;
    if (!n) return EK_OK;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return ek_fail(EK_EINVAL, "the token in %s has a character that no token has", from);
    p->token = ek_strdup(text);
    p->token[n] = '\0';
    p->token_from = ek_strdup(from);
    return EK_OK;
}

static ek_err find_token(ek_hub_places *p, const char *home, ek_hub_env *env)
{
    const char *set = first_of(env, (const char *const[]){"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", NULL});
    if (set) return set_token(p, set, "HF_TOKEN");
    if (is_true(env("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return EK_OK;
    const char *path = first_of(env, (const char *const[]){"HF_TOKEN_PATH", NULL});
    char *file = path ? expanded(path, env) : joined(home, "token");
    ek_buf text = {0};
    ek_err err = ek_is_file(file) ? ek_file_read(&text, file, 4096) : EK_OK;
    if (!err) err = set_token(p, ek_buf_text(&text), file);
    ek_buf_fini(&text);
    free(file);
    return err;
}

static ek_err set_timeout(ek_hub_places *p, ek_hub_env *env)
{
    const char *v = first_of(env, (const char *const[]){"HF_HUB_DOWNLOAD_TIMEOUT", NULL});
    char *end = NULL;
    p->timeout = v ? strtod(v, &end) : 30;
    if (v && (*end || !(p->timeout >= 1 && p->timeout <= 86400)))
        return ek_fail(EK_EINVAL, "HF_HUB_DOWNLOAD_TIMEOUT %.40s: seconds from 1 to 86400 are needed", v);
    return EK_OK;
}

ek_err ek_hub_places_init(ek_hub_places *p, ek_hub_env *env)
{
    char *home = NULL;
    *p = (ek_hub_places){.offline = is_true(env("HF_HUB_OFFLINE")) || is_true(env("TRANSFORMERS_OFFLINE"))};
    EK_TRY(find_home(&home, env));
    const char *cache = first_of(env, (const char *const[]){"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL});
    const char *ca = first_of(env,
                              (const char *const[]){"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", NULL});
    p->cache = cache ? expanded(cache, env) : joined(home, "hub");
    p->ca_file = ca ? ek_strdup(ca) : NULL;
    ek_err err = set_endpoint(p, env);
    if (!err) err = find_token(p, home, env);
    if (!err) err = set_timeout(p, env);
    free(home);
    return err;
}

void ek_hub_places_fini(ek_hub_places *p)
{
    free(p->endpoint);
    free(p->cache);
    free(p->token);
    free(p->token_from);
    free(p->ca_file);
    *p = (ek_hub_places){0};
}
