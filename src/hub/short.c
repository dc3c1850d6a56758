/* Short names of models, other programs' names of the same weights, and guesses. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/near.h"
#include "hub/name.h"

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
