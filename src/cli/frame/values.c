#include "cli/frame/table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "open/device.h"
#include "ops/kv/kv.h"
#include "serve/http/http_head.h"

static void *field_of(ek_cli *cli, const ek_option *o)
{
    return (char *)cli + o->field;
}

static void bound_text(ek_buf *b, const ek_option *o, bool whole, double x)
{
    if (o->kind == OPT_INT && x >= 0x1p63) ek_buf_fmt(b, "%lld", (long long)INT64_MAX); /* no double has this value */
    else if (whole) ek_buf_fmt(b, "%.0f", x);
    else ek_buf_fmt(b, "%g", x);
}

/* A quote around a value in a message, if the value would not be visible without it. */
static const char *quote_of(const char *value)
{
    return *value && !strpbrk(value, " \t\n") ? "" : "\"";
}

/* "--chunk 9: a whole number from 16 to 8192 is needed", also for an item of a list. */
static ek_err out_of_range(const ek_given *g, const char *item, const char *what, const char *behind)
{
    ek_buf b = {0};
    bool whole = g->o->kind != OPT_NUM;
    const char *quote = quote_of(item);
    bound_text(&b, g->o, whole, g->o->min);
    ek_buf_str(&b, " to ");
    bound_text(&b, g->o, whole, g->o->max);
    ek_err err = ek_fail(EK_EINVAL, "%s %s%.60s%s: a %s from %s%s", g->where, quote, item, quote, what, ek_buf_text(&b),
                         behind);
    ek_buf_fini(&b);
    return err;
}

/* A whole number in [min, max] that ends at *end. */
static bool read_int(const char *s, const ek_option *o, int64_t *v, const char **end)
{
    char *stop;
    if (!(*s == '-' || (*s >= '0' && *s <= '9'))) return false;
    errno = 0;
    long long x = strtoll(s, &stop, 10);
    if (stop == s || errno || (double)x < o->min || (double)x > o->max) return false;
    *v = x;
    *end = stop;
    return true;
}

static ek_err set_int(ek_cli *cli, const ek_given *g)
{
    const char *end;
    int64_t v;
    if (!read_int(g->value, g->o, &v, &end) || *end) return out_of_range(g, g->value, "whole number", " is needed");
    *(int64_t *)field_of(cli, g->o) = v;
    return EK_OK;
}

/* A decimal number that ends at *end, like strtod, but without its other forms: leading blanks, +, hexadecimal digits,
 * words. */
static bool read_real(const char *s, double *v, const char **end)
{
    char *stop;
    *v = strtod(s, &stop);
    *end = stop;
    return stop != s && *s != '+' && (size_t)(stop - s) <= strspn(s, "0123456789.eE+-");
}

static ek_err set_num(ek_cli *cli, const ek_given *g)
{
    const char *end;
    double v;
    if (!read_real(g->value, &v, &end) || *end || !(v >= g->o->min && v <= g->o->max))
        return out_of_range(g, g->value, "number", " is needed");
    *(double *)field_of(cli, g->o) = v;
    return EK_OK;
}

static ek_err set_size(ek_cli *cli, const ek_given *g)
{
    static const char units[] = "KMGT";
    const char *end;
    double v;
    bool ok = read_real(g->value, &v, &end);
    const char *unit = ok && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        v = ldexp(v, 10 * (int)(unit - units + 1));
        end++;
    }
    if (!ok || *end || !(v >= g->o->min && v <= g->o->max))
        return out_of_range(g, g->value, "size", " bytes is needed, as in 512M or 4G");
    *(double *)field_of(cli, g->o) = floor(v);
    return EK_OK;
}

/* "--log loud: one of json, text is needed" */
__attribute__((format(printf, 2, 3))) static ek_err needed(const ek_given *g, const char *fmt, ...)
{
    char what[512];
    const char *quote = quote_of(g->value);
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return ek_fail(EK_EINVAL, "%s %s%.60s%s: %s is needed", g->where, quote, g->value, quote, what);
}

/* The words of a switch: *on. False for another word. */
static bool is_switch(const char *s, bool *on)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes"};
    for (int i = 0; i < 6; i++)
        if (!strcmp(s, words[i])) {
            *on = i % 2;
            return true;
        }
    return false;
}

static ek_err set_choice(ek_cli *cli, const ek_given *g)
{
    size_t n = strlen(g->value);
    for (const char *p = g->o->placeholder; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && !memcmp(p, g->value, n)) {
            *(const char **)field_of(cli, g->o) = g->value;
            return EK_OK;
        }
        p += len + (p[len] == '|');
    }
    return needed(g, "one of %s", g->o->placeholder);
}

static ek_err set_flag(ek_cli *cli, const ek_given *g)
{
    if (is_switch(g->value, field_of(cli, g->o))) return EK_OK;
    return needed(g, "one of 1, 0, true, false, yes, no");
}

static ek_err set_list(ek_cli *cli, const ek_given *g)
{
    ek_list *list = field_of(cli, g->o);
    size_t room = 1;
    for (const char *p = g->value; *p; p++) room += *p == ',';
    free(list->v);
    list->v = ek_alloc(room * sizeof *list->v);
    list->n = 0;
    for (const char *p = g->value;;) {
        int64_t v;
        const char *end;
        if (!read_int(p, g->o, &v, &end) || (*end && *end != ','))
            return out_of_range(g, p, "whole number", " is needed");
        list->v[list->n++] = (int32_t)v;
        if (!*end) return EK_OK;
        p = end + 1;
    }
}

static ek_err set_files(ek_cli *cli, const ek_given *g)
{
    ek_names *names = field_of(cli, g->o);
    if (!*g->value) return ek_fail(EK_EINVAL, "%s: an empty value", g->where);
    names->v = ek_realloc(names->v, (size_t)(names->n + 1) * sizeof *names->v);
    names->v[names->n++] = g->value;
    return EK_OK;
}

bool ek_option_may_be_empty(const ek_option *o)
{
    return !strcmp(o->name, "cors_origins");
}

/* Checks texts whose grammar another layer owns. */
static ek_err parse_text(const ek_given *g)
{
    ek_kv_format k, v;
    unsigned cpu;
    ek_device device;
    if (!strcmp(g->o->name, "kv")) return ek_kv_format_parse(g->value, &k, &v);
    if (!strcmp(g->o->name, "isa")) return ek_cpu_mask(g->value, &cpu);
    if (!strcmp(g->o->name, "device")) return ek_device_parse(&device, g->value);
    if (!strcmp(g->o->name, "path_prefix")) return ek_http_prefix_check(g->value);
    return EK_OK;
}

static ek_err set_str(ek_cli *cli, const ek_given *g)
{
    if (!*g->value && !ek_option_may_be_empty(g->o)) return ek_fail(EK_EINVAL, "%s: an empty value", g->where);
    if (parse_text(g)) return ek_fail_in(EK_EINVAL, "%s", g->where);
    *(const char **)field_of(cli, g->o) = g->value;
    return EK_OK;
}

bool ek_option_is_path(const char *s)
{
    return s[0] == '/' || !strncmp(s, "./", 2) || !strncmp(s, "../", 3);
}

static ek_err set_program(ek_cli *cli, const ek_given *g)
{
    const char **to = field_of(cli, g->o);
    const bool path = ek_option_is_path(g->value);
    bool on = !strcmp(g->value, "on");
    if (!path && !on && strcmp(g->value, "off") && !is_switch(g->value, &on))
        return needed(g, "on, off, or a path that begins with / or .");
    *to = path ? g->value : on ? "on" : NULL;
    return EK_OK;
}

/* For an option whose placeholder is [=WORD]. */
static ek_err set_level(ek_cli *cli, const ek_given *g)
{
    const char **to = field_of(cli, g->o), *word = g->o->placeholder + 2;
    const size_t n = strlen(word) - 1;
    const bool is_word = strlen(g->value) == n && !memcmp(g->value, word, n);
    bool on;
    if (!is_word && !is_switch(g->value, &on))
        return needed(g, "one of %.*s, 1, 0, true, false, yes, no", (int)n, word);
    *to = is_word ? g->value : on ? "on" : NULL;
    return EK_OK;
}

ek_err ek_option_set(ek_cli *cli, const ek_given *g)
{
    static ek_err (*const by_kind[])(ek_cli *, const ek_given *) = {
        [OPT_STR] = set_str,         [OPT_CHOICE] = set_choice, [OPT_INT] = set_int,   [OPT_NUM] = set_num,
        [OPT_SIZE] = set_size,       [OPT_FLAG] = set_flag,     [OPT_LIST] = set_list, [OPT_FILES] = set_files,
        [OPT_PROGRAM] = set_program, [OPT_LEVEL] = set_level,
    };
    EK_TRY(by_kind[g->o->kind](cli, g));
    *((bool *)((char *)cli + g->o->has)) = true;
    return EK_OK;
}

void ek_option_clear(ek_cli *cli, const ek_option *o)
{
    if (o->kind == OPT_FILES) {
        ek_names *names = field_of(cli, o);
        free(names->v);
        *names = (ek_names){0};
    }
    if (o->kind == OPT_LIST) {
        ek_list *list = field_of(cli, o);
        free(list->v);
        *list = (ek_list){0};
    }
}
