/* context_management: removes parts of a conversation before it is read, and decides whether a summary is due. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/anthropic/anthropic.h"
#include "serve/api/context.h"
#include "serve/api/field.h"

#define FIELD "context_management"

enum { COMPACT_AT = 150000, CLEAR_AT = 100000, KEEP_USES = 3 }; /* the API's defaults */

static int usual(const ek_api_limits *limits, int tokens)
{
    const int max = ek_context_threshold(limits->ctx_tokens);
    return tokens < max ? tokens : max;
}

/* Reads {"type": kind, "value": N} under key. other: a second kind, whose value goes to *out_other, and *out becomes
 * -1; NULL: none. Both keep their values if the key is absent. */
static ek_err read_value(ek_api_request *r, const json_t *edit, const char *key, const char *kind, const char *other,
                         int64_t *out, int64_t *out_other)
{
    const json_t *v = ek_field(edit, key);
    const char *type = ek_json_get_text(v, "type", NULL);
    bool found = false;
    int64_t value = 0;
    if (!v) return EK_OK;
    const bool is_other = other && type && !strcmp(type, other);
    if (!type || (strcmp(type, kind) != 0 && !is_other)) {
        r->param = FIELD;
        return ek_fail(EK_EINVAL, FIELD ": the type of its %s must be %s%s%s", key, kind, other ? " or " : "",
                       other ? other : "");
    }
    ek_err err = ek_field_int(r, v, "value", 0, INT_MAX, &value, &found);
    if (!err && !found) err = ek_fail(EK_EINVAL, "value: a whole number is needed");
    r->param = err ? FIELD : NULL;
    if (err) return ek_fail_in(err, FIELD ": its %s", key);
    if (is_other) *out_other = value, *out = -1;
    else *out = value;
    return EK_OK;
}

static ek_err read_names(ek_api_request *r, const json_t *v, const char *key, const json_t **out)
{
    bool texts = json_is_array(v);
    if (json_array_size(v) > EK_EDIT_NAMES_MAX) {
        r->param = FIELD;
        return ek_fail(EK_EINVAL, FIELD ": its %s has %zu names of tools, at most %d are allowed", key,
                       json_array_size(v), EK_EDIT_NAMES_MAX);
    }
    for (size_t i = 0; texts && i < json_array_size(v); i++) texts = ek_json_is_text(json_array_get(v, i));
    if (!texts) {
        r->param = FIELD;
        return ek_fail(EK_EINVAL, FIELD ": its %s must be a list of names of tools", key);
    }
    *out = json_incref((json_t *)(uintptr_t)v);
    return EK_OK;
}

static ek_err read_tool_uses(ek_api_request *r, const json_t *v, const ek_api_limits *limits, ek_edit *e)
{
    int64_t none = -1;
    const json_t *excluded = ek_field(v, "exclude_tools"), *inputs = ek_field(v, "clear_tool_inputs");
    *e = (ek_edit){
        .kind = EK_EDIT_TOOL_USES, .more_tokens = usual(limits, CLEAR_AT), .more_uses = -1, .keep = KEEP_USES};
    EK_TRY(read_value(r, v, "trigger", "input_tokens", "tool_uses", &e->more_tokens, &e->more_uses));
    EK_TRY(read_value(r, v, "keep", "tool_uses", NULL, &e->keep, &none));
    EK_TRY(read_value(r, v, "clear_at_least", "input_tokens", NULL, &e->at_least, &none));
    if (excluded) EK_TRY(read_names(r, excluded, "exclude_tools", &e->excluded));
    if (json_is_boolean(inputs)) e->inputs = json_is_true(inputs);
    else if (inputs) EK_TRY(read_names(r, inputs, "clear_tool_inputs", &e->inputs_of));
    return EK_OK;
}

static ek_err read_thinking(ek_api_request *r, const json_t *v, ek_edit *e)
{
    const json_t *keep = ek_field(v, "keep");
    const char *word = ek_json_is_text(keep) ? json_string_value(keep) : ek_json_get_text(keep, "type", NULL);
    int64_t none = -1;
    *e = (ek_edit){.kind = EK_EDIT_THINKING, .keep = 1};
    if (word && !strcmp(word, "all")) e->keep = INT_MAX;
    else EK_TRY(read_value(r, v, "keep", "thinking_turns", NULL, &e->keep, &none));
    return EK_OK;
}

static ek_err read_compact(ek_api_request *r, const json_t *v, const ek_api_limits *limits, ek_context *c)
{
    const json_t *ask = ek_field(v, "instructions");
    int64_t at = usual(limits, COMPACT_AT), none = -1;
    EK_TRY(read_value(r, v, "trigger", "input_tokens", NULL, &at, &none));
    ek_err err = ek_field_bool(r, v, "pause_after_compaction", &c->alone);
    r->param = err ? FIELD : NULL;
    if (err) return ek_fail_in(err, FIELD);
    if (ask && !ek_json_is_text(ask)) return ek_field_wrong(r, FIELD, "its instructions must be a text");
    if (ask) ek_buf_add(&c->ask, json_string_value(ask), json_string_length(ask));
    c->compact_at = at > 0 ? (int)at : 1;
    return EK_OK;
}

static ek_err read_edit(ek_api_request *r, const json_t *v, const ek_api_limits *limits)
{
    ek_context *c = ek_context_of(r);
    const char *type = ek_json_get_text(v, "type", NULL);
    if (!type) return ek_field_wrong(r, FIELD, "each of its edits must be an object with a type");
    if (!strcmp(type, "compact_20260112")) return read_compact(r, v, limits, c);
    const bool uses = !strcmp(type, "clear_tool_uses_20250919");
    if (!uses && strcmp(type, "clear_thinking_20251015") != 0)
        return ek_field_wrong_text(
            r, FIELD, "its edits are compact_20260112, clear_tool_uses_20250919 and clear_thinking_20251015, not", type,
            "");
    if (c->n_edits == EK_EDITS_MAX) return ek_field_wrong(r, FIELD, "it has more than 8 edits");
    ek_edit *e = &c->edit[c->n_edits++];
    return uses ? read_tool_uses(r, v, limits, e) : read_thinking(r, v, e);
}

ek_err ek_anthropic_context(ek_api_request *r, const json_t *body, const ek_api_limits *limits, bool compacts)
{
    ek_anthropic *own = r->own;
    const json_t *v = ek_field(body, FIELD), *edits = ek_field(v, "edits");
    if (!v) return EK_OK;
    if (!json_is_object(v) || (edits && !json_is_array(edits)))
        return ek_field_wrong(r, FIELD, "an object with a list of edits is needed");
    for (size_t i = 0; i < json_array_size(edits); i++) EK_TRY(read_edit(r, json_array_get(edits, i), limits));
    own->managed = true;
    ek_context *c = r->context;
    own->context = c;
    if (!c) return EK_OK;
    if (!compacts || limits->summary) c->compact_at = 0;
    return EK_OK;
}

bool ek_anthropic_compacts(const ek_anthropic *own)
{
    return own->compacting || (own->context && own->context->compacts && own->context->alone);
}

void ek_anthropic_put_edits(ek_buf *out, const ek_anthropic *own)
{
    const ek_context *c = own->context;
    const char *comma = "";
    if (!own->managed) return;
    ek_buf_str(out, ",\"context_management\":{\"applied_edits\":[");
    for (int i = 0; c && i < c->n_edits; i++) {
        const ek_edit *e = &c->edit[i];
        if (e->n_cleared == 0) continue;
        const bool uses = e->kind == EK_EDIT_TOOL_USES;
        ek_buf_fmt(out, "%s{\"type\":\"%s\",\"%s\":%d,\"cleared_input_tokens\":%lld}", comma,
                   uses ? "clear_tool_uses_20250919" : "clear_thinking_20251015",
                   uses ? "cleared_tool_uses" : "cleared_thinking_turns", e->n_cleared, (long long)e->n_tokens);
        comma = ",";
    }
    ek_buf_str(out, "]}");
}
