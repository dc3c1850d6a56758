#include "hub/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/near.h"

static bool plain(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

/* Whether n bytes are one of the two parts of a repository's name. */
static bool is_part(const char *s, size_t n)
{
    if (n == 0 || n > 96) return false;
    for (size_t i = 0; i < n; i++)
        if (!plain(s[i])) return false;
    return s[0] != '-' && s[0] != '.' && s[n - 1] != '-' && s[n - 1] != '.';
}

/* Whether s is ORG/NAME by the Hub's rule: letters, digits and . _ -. None of these three may be at the ends, and "--"
 * and ".." are not allowed. */
static bool hub_is_repo(const char *s)
{
    const char *slash = strchr(s, '/');
    return slash && strlen(s) < EK_HUB_REPO && !strstr(s, "--") && !strstr(s, "..") &&
           is_part(s, (size_t)(slash - s)) && is_part(slash + 1, strlen(slash + 1));
}

bool ek_hub_is_path(const char *s)
{
    if (strlen(s) >= EK_HUB_FILE) return false;
    for (;;) {
        size_t n = strcspn(s, "/");
        if (n == 0 || n > 255 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.')) return false;
        bool plain = true;
        for (size_t i = 0; i < n && plain;) i += ek_plain_char(s + i, n - i, &plain);
        if (!plain || memchr(s, '\\', n)) return false;
        if (!s[n]) return true;
        s += n + 1;
    }
}

static bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

bool ek_hub_is_commit(const char *s)
{
    return is_hex(s, 40);
}

bool ek_hub_is_hash(const char *s)
{
    return is_hex(s, 40) || is_hex(s, 64);
}

static bool copy(char *out, size_t room, const char *s, size_t n)
{
    if (n >= room) return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

/* The text after the Hub's address, which browsers and other programs write; NULL: there is no address. */
static const char *behind_address(const char *text)
{
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    if (!strncasecmp(text, "https://", 8)) text += 8;
    else if (!strncasecmp(text, "http://", 7)) text += 7;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (!strncasecmp(text, hosts[i], strlen(hosts[i]))) return text + strlen(hosts[i]);
    return NULL;
}

/* Turns ORG/NAME[/tree/REVISION][/blob/REVISION/FILE][:FILE] of an address into ORG/NAME[@REVISION][:FILE]. */
static void from_address(ek_buf *out, const char *text)
{
    const char *name = strchr(text, '/');
    const char *rest = name ? strchr(name + 1, '/') : NULL;
    if (!rest) {
        ek_buf_str(out, text);
        return;
    }
    ek_buf_add(out, text, (size_t)(rest - text));
    const char *revision = strchr(rest + 1, '/');
    if (!revision) return;
    const size_t n = strcspn(++revision, "/?#");
    if (n) ek_buf_char(out, '@'), ek_buf_add(out, revision, n);
    if (revision[n] == '/') ek_buf_char(out, ':'), ek_buf_add(out, revision + n + 1, strcspn(revision + n + 1, "?#"));
}

ek_err ek_hub_name_parse(ek_hub_name *out, const char *text)
{
    const char *behind = behind_address(text);
    if (behind) {
        ek_buf plain_name = {0};
        from_address(&plain_name, behind);
        const ek_err err = ek_hub_name_parse(out, ek_buf_text(&plain_name));
        ek_buf_fini(&plain_name);
        return err;
    }
    *out = (ek_hub_name){.revision = "main"};
    size_t left = strcspn(text, ":"), repo = strcspn(text, "@:");
    out->has_revision = text[repo] == '@';
    if (!copy(out->repo, sizeof out->repo, text, repo) || !hub_is_repo(out->repo))
        return ek_fail(EK_EINVAL, "%.200s is no repository; one is written ORG/NAME, with @REVISION or :FILE behind it",
                       text);
    if (text[repo] == '@' && (!copy(out->revision, sizeof out->revision, text + repo + 1, left - repo - 1) ||
                              !ek_hub_is_path(out->revision)))
        return ek_fail(EK_EINVAL, "%.200s: what stands behind @ is no name of a revision", text);
    if (text[left] == ':' &&
        (!copy(out->file, sizeof out->file, text + left + 1, strlen(text + left + 1)) || !ek_hub_is_path(out->file)))
        return ek_fail(EK_EINVAL, "%.200s: what stands behind : is neither a file nor a quantisation", text);
    return EK_OK;
}

void ek_hub_name_text(ek_buf *out, const ek_hub_name *name)
{
    ek_buf_str(out, name->repo);
    if (name->has_revision) ek_buf_fmt(out, "@%s", name->revision);
    if (*name->file) ek_buf_fmt(out, ":%s", name->file);
}

void ek_hub_folder(ek_buf *out, const char *repo)
{
    ek_buf_str(out, "models--");
    for (; *repo; repo++)
        if (*repo == '/') ek_buf_str(out, "--");
        else ek_buf_char(out, *repo);
}

bool ek_hub_repo_of(char *repo, const char *folder)
{
    static const char head[] = "models--";
    if (strncmp(folder, head, sizeof head - 1) != 0) return false;
    folder += sizeof head - 1;
    const char *gap = strstr(folder, "--");
    if (!gap || strlen(folder) >= EK_HUB_REPO) return false;
    snprintf(repo, EK_HUB_REPO, "%.*s/%s", (int)(gap - folder), folder, gap + 2);
    return hub_is_repo(repo);
}

/* RFC 3986: all but unreserved characters become %XX. Slashes stay if keep. */
static void escape(ek_buf *out, const char *s, bool keep)
{
    for (; *s; s++)
        if (plain(*s) || *s == '~' || (keep && *s == '/')) ek_buf_char(out, *s);
        else ek_buf_fmt(out, "%%%02X", (unsigned char)*s);
}

void ek_hub_url_list(ek_buf *out, const char *endpoint, const char *repo, const char *revision)
{
    ek_buf_fmt(out, "%s/api/models/%s/revision/", endpoint, repo);
    escape(out, revision, false);
    ek_buf_str(out, "?blobs=true");
}

void ek_hub_url_file(ek_buf *out, const char *endpoint, const char *repo, const char *commit, const char *path)
{
    ek_buf_fmt(out, "%s/%s/resolve/%s/", endpoint, repo, commit);
    escape(out, path, true);
}

/* --- short names --- */

const ek_hub_short ek_hub_shorts[] = {
#define NAME(name, model, gigabytes, text) {name, model, gigabytes, text},
#include "hub/names.def"
#undef NAME
};
const int ek_hub_n_shorts = sizeof ek_hub_shorts / sizeof *ek_hub_shorts;

static const ek_hub_short *exact(const char *name)
{
    for (int i = 0; i < ek_hub_n_shorts; i++)
        if (!strcasecmp(name, ek_hub_shorts[i].name)) return &ek_hub_shorts[i];
    return NULL;
}

/* A repository without its owner, with or without a file after it. */
static const ek_hub_short *of_repository(const char *name)
{
    for (int i = 0; i < ek_hub_n_shorts; i++) {
        const char *repo = strchr(ek_hub_shorts[i].model, '/') + 1;
        const size_t n = strcspn(repo, ":");
        if (!strcasecmp(name, repo) || (strlen(name) == n && !strncasecmp(name, repo, n))) return &ek_hub_shorts[i];
    }
    return NULL;
}

/* The next word of a name in lower case, without the characters between words. False at the end. */
static bool next_word(char word[16], const char **at)
{
    static const char between[] = "-_: .";
    *at += strspn(*at, between);
    const size_t n = strcspn(*at, between);
    if (!n) return false;
    for (size_t i = 0; i < n && i < 15; i++) word[i] = (char)tolower((unsigned char)(*at)[i]);
    word[n < 15 ? n : 15] = '\0';
    *at += n;
    return true;
}

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(word, *list)) return true;
    return false;
}

/* The words in a name that tell its format ("q8_0" is q8 and 0), and the suffix of the short name. */
static const struct {
    const char *words, *suffix;
} formats[] = {
    {"", ""},          {"latest", ""},        {"qat", ""},           {"q4", ""},
    {"q4 0", ""},      {"qat q4 0", ""},      {"q4 k m", ":q4_k_m"}, {"q8", ":q8"},
    {"q8 0", ":q8"},   {"4bit", ":4bit"},     {"mlx", ":4bit"},      {"mlx 4bit", ":4bit"},
    {"8bit", ":8bit"}, {"mlx 8bit", ":8bit"}, {"bf16", ":bf16"},     {"fp16", ":bf16"},
    {"f16", ":bf16"},
};

/* "gemma4:e2b", "gemma-4-26b-a4b-it-q8_0", "E4B-it": a size, then words without a meaning here, then a format. Ollama's
 * gemma4 without a size is E4B. */
static const ek_hub_short *of_words(const char *name)
{
    static const char *const sizes[] = {"e2b", "e4b", "12b", "26b", "31b", NULL};
    static const char *const silent[] = {"it", "a4b", "instruct", "gguf", "qat", NULL};
    char word[16], size[24] = "", format[64] = "";
    const char *at = name;
    bool family = false;
    while (next_word(word, &at)) {
        if (!*size && !*format && !family && !strcmp(word, "gemma4")) family = true;
        else if (!*size && !*format && !family && !strcmp(word, "gemma") && next_word(word, &at) && !strcmp(word, "4"))
            family = true;
        else if (!*size && is_one_of(word, sizes)) snprintf(size, sizeof size, "%s", word);
        else if (*size && !*format && is_one_of(word, silent)) continue;
        else if (strlen(format) + strlen(word) + 2 < sizeof format)
            snprintf(format + strlen(format), sizeof format - strlen(format), "%s%s", *format ? " " : "", word);
        else return NULL;
    }
    if (!*size && !family) return NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(format, formats[i].words) != 0) continue;
        char found[40];
        snprintf(found, sizeof found, "%s%s", *size ? size : "e4b", formats[i].suffix);
        return exact(found);
    }
    return NULL;
}

const ek_hub_short *ek_hub_short_find(const char *name)
{
    static const char *const homes[] = {"ollama.com/library/", "registry.ollama.ai/library/", "library/"};
    if (!strncasecmp(name, "https://", 8)) name += 8;
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++)
        if (!strncasecmp(name, homes[i], strlen(homes[i]))) name += strlen(homes[i]);
    const ek_hub_short *found = exact(name);
    if (!found && !strchr(name, '/') && !strchr(name, ' ')) {
        found = of_repository(name);
        if (!found) found = of_words(name);
    }
    return found;
}

const ek_hub_short *ek_hub_short_near(const char *text)
{
    const ek_hub_short *best = NULL;
    int least = EK_NOT_NEAR;
    for (int i = 0; i < ek_hub_n_shorts; i++) {
        char lower[48];
        size_t n = 0;
        for (; text[n] && n < sizeof lower - 1; n++) lower[n] = (char)tolower((unsigned char)text[n]);
        lower[n] = '\0';
        const int far = text[n] ? EK_NOT_NEAR : ek_near(lower, n, ek_hub_shorts[i].name);
        if (far < least) least = far, best = &ek_hub_shorts[i];
    }
    return best;
}

bool ek_hub_is_other_family(const char *text)
{
    /* Names that are also ordinary words or persons' names need a following part: "phi-4" is a model, "phi" is a
     * letter. */
    static const char *const alone[] = {"codellama", "tinyllama", "qwen",      "qwq",       "mistral",  "mixtral",
                                        "codestral", "devstral",  "magistral", "ministral", "gpt-oss",  "deepseek",
                                        "smollm",    "starcoder", "nemotron",  "codegemma", "medgemma", "gemma3n",
                                        "glm",       "olmo",      "exaone"};
    static const char *const more[] = {"gemma",   "llama", "phi",  "granite", "falcon", "dolphin",
                                       "command", "solar", "orca", "kimi",    "hermes", "vicuna"};
    for (size_t i = 0; i < sizeof alone / sizeof *alone + sizeof more / sizeof *more; i++) {
        const bool may_end = i < sizeof alone / sizeof *alone;
        const char *name = may_end ? alone[i] : more[i - sizeof alone / sizeof *alone];
        const size_t n = strlen(name);
        if (strncasecmp(text, name, n) != 0) continue;
        const char behind = text[n];
        if ((!behind && may_end) ||
            (behind && (isdigit((unsigned char)behind) || strchr("-_.:", behind)) && text[n + 1]) ||
            (isdigit((unsigned char)behind) && !text[n + 1]))
            return true;
    }
    return false;
}

/* Whether text contains, in any case, one of the words for a size: "gemma-4-e2b-it" has e2b. */
static bool has_size(const char *text, const char *size)
{
    size_t n = strlen(size);
    for (const char *p = text; *p; p++) {
        bool first = p == text || !isalnum((unsigned char)p[-1]);
        if (first && !strncasecmp(p, size, n) && !isalnum((unsigned char)p[n])) return true;
    }
    return false;
}

void ek_hub_short_suggest(ek_buf *out, const char *text)
{
    int n = 0, sizes = 0;
    char size[16] = "";
    for (int i = 0; i < ek_hub_n_shorts; i++) {
        const char *name = ek_hub_shorts[i].name;
        size_t len = strcspn(name, ":");
        if (len >= sizeof size) continue;
        memcpy(size, name, len);
        size[len] = '\0';
        if (has_size(text, size)) ek_buf_fmt(out, "%s%s", n++ ? ", " : "", name);
    }
    for (int i = 0; i < ek_hub_n_shorts && !n; i++)
        if (!strchr(ek_hub_shorts[i].name, ':')) ek_buf_fmt(out, "%s%s", sizes++ ? ", " : "", ek_hub_shorts[i].name);
}

void ek_hub_guess(ek_buf *out, const char *text)
{
    const ek_hub_short *near = ek_hub_short_near(text);
    if (ek_hub_is_other_family(text)) ek_buf_str(out, " is of another family, and only Gemma 4 runs here: ");
    else if (near) ek_buf_fmt(out, " is no model; did you mean %s? There are ", near->name);
    else ek_buf_str(out, " is no model; there are ");
    ek_hub_short_suggest(out, text);
    ek_buf_str(out, " (`evenkeel names` lists them all), ORG/NAME of the Hub, folders and GGUF files");
}
