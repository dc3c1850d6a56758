/* Strings: their length, pattern and format. */
#include <string.h>

#include "text/json/json.h"
#include "text/schema/schema_work.h"

/* The automaton of pattern and format; *out is NULL where neither says anything. */
static ek_err make_regex(ek_schema_work *w, const json_t *pattern, const char *format, ek_regex **out)
{
    ek_regex *a = NULL, *b = NULL;
    *out = NULL;
    int64_t *left = &w->regex_left;
    if (pattern) {
        const char *s = json_string_value(pattern);
        bool cut = false;
        EK_TRY(ek_regex_open_lenient(&a, s, json_string_length(pattern), left, w->opts.lenient ? &cut : NULL));
        if (cut) ek_schema_note(w, "pattern");
    }
    ek_err err = format ? ek_regex_open_within(&b, format, strlen(format), left) : EK_OK;
    if (a && b) {
        err = ek_regex_and(out, a, b);
        ek_regex_close(a);
        ek_regex_close(b);
    } else if (!err) {
        *out = a ? a : b;
    } else {
        ek_regex_close(a);
    }
    return err;
}

static ek_err new_pattern(ek_schema_work *w, const json_t *pattern, const char *format, uint32_t min, uint32_t max,
                          int32_t *out)
{
    ek_regex *regex;
    ek_pattern *p;
    EK_TRY(make_regex(w, pattern, format, &regex));
    EK_TRY(ek_schema_spend(w, (size_t)regex->n_states));
    EK_TRY(ek_pattern_open(&p, regex, min, max));
    return ek_graph_pattern_add(w->g, p, out);
}

/* Strings that say the same share one. */
static ek_err string_pattern(ek_schema_work *w, const json_t *pattern, const char *format, uint32_t min, uint32_t max,
                             int32_t *out)
{
    ek_buf key = {0};
    ek_buf_fmt(&key, "%u %u %d %s ", min, max, w->opts.lenient, format ? format : "");
    if (pattern) ek_buf_add(&key, json_string_value(pattern), json_string_length(pattern));
    const json_t *known = json_object_getn(w->patterns, key.data, key.len);
    ek_err err = EK_OK;
    if (known) *out = (int32_t)json_integer_value(known);
    else err = new_pattern(w, pattern, format, min, max, out);
    if (!known && !err) json_object_setn_new_nocheck(w->patterns, key.data, key.len, json_integer(*out));
    ek_buf_fini(&key);
    return err;
}

/* The number of the pattern that keeps as much as can be kept: a format only describes, so it goes first. */
static ek_err as_much_as_can_be(ek_schema_work *w, const json_t *pattern, const char *format, uint32_t min,
                                uint32_t max, int32_t *number)
{
    ek_err err = string_pattern(w, pattern, format, min, max, number);
    if (!err || !w->opts.lenient) return err;
    if (pattern && format && w->regex_left > 0) {
        err = string_pattern(w, pattern, NULL, min, max, number);
        if (!err) return err;
        ek_schema_note(w, "pattern");
        err = w->regex_left > 0 ? string_pattern(w, NULL, format, min, max, number) : err;
        if (!err) return err;
    }
    ek_schema_note(w, pattern ? "pattern" : "format");
    *number = -1;
    return EK_OK;
}

ek_err ek_schema_string(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    uint32_t min = 0, max = UINT32_MAX;
    int32_t number = -1;
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *format = ek_json_get_text(schema, "format", NULL);
    EK_TRY(ek_schema_count(w, schema, "minLength", &min));
    EK_TRY(ek_schema_count(w, schema, "maxLength", &max));
    if (min > max) return ek_schema_fail(w, "at least %u and at most %u characters", min, max);
    if (pattern && !ek_json_is_text(pattern)) return ek_schema_fail(w, "\"pattern\" must be a text");
    if (format) format = ek_pattern_of_format(format);
    if (pattern || format) {
        ek_err err = as_much_as_can_be(w, pattern, format, min, max, &number);
        if (err) {
            ek_buf says = {0};
            ek_buf_str(&says, ek_err_text());
            ek_schema_fail(w, "\"%s\": %s", pattern ? "pattern" : "format", ek_buf_text(&says));
            ek_buf_fini(&says);
            return err;
        }
    }
    EK_TRY(ek_graph_node(w->g, EK_NODE_STRING, w->opts.gemma, out));
    w->g->nodes[*out].min = min;
    w->g->nodes[*out].max = max;
    w->g->nodes[*out].pattern = number;
    return EK_OK;
}
