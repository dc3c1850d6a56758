#include "hub/names.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

const ek_hub_short ek_hub_shorts[] = {
#define NAME(name, model, gigabytes, text) {name, model, gigabytes, text},
#include "hub/names.def"
#undef NAME
};
const int ek_hub_n_shorts = sizeof ek_hub_shorts / sizeof *ek_hub_shorts;

const ek_hub_short *ek_hub_short_find(const char *name)
{
    for (int i = 0; i < ek_hub_n_shorts; i++)
        if (!strcasecmp(name, ek_hub_shorts[i].name)) return &ek_hub_shorts[i];
    return NULL;
}

/* Whether text, in any case, is one of the words that a size's name is of: "gemma-4-e2b-it" has e2b. */
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
