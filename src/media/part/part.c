/* The positions of a prompt that belong to each picture and sound. */
#include "media/part/part.h"

const char *ek_part_name(ek_part_kind kind)
{
    static const char *const name[] = {"image", "video frame", "sound"};
    return name[kind];
}

ek_part_kind ek_part_kind_of(const ek_media_ids *ids, int32_t token)
{
    int k = 0;
    while (k < EK_PART_KINDS && (token <= 0 || ids->soft[k] != token)) k++;
    return (ek_part_kind)k;
}

static ek_err no_media(int pos, ek_part_kind kind)
{
    return ek_fail(EK_EINVAL, "position %d is a place for a%s %s, and none is attached for it", pos,
                   kind == EK_PART_IMAGE ? "n" : "", ek_part_name(kind));
}

/* The index of the next part of a kind, from index i on; n: none. */
static int next_of(const ek_part *part, int n, int i, ek_part_kind kind)
{
    while (i < n && part[i].media->kind != kind) i++;
    return i;
}

/* The number of the part among those of its kind, from 1. */
static int ordinal(const ek_part *part, int i)
{
    int n = 0;
    for (int k = 0; k <= i; k++) n += part[k].media->kind == part[i].media->kind;
    return n;
}

/* Part i was not taken, because parts of its kind are taken in order. */
static ek_err no_place(const ek_part *part, int n, int i)
{
    int places = ordinal(part, i) - 1, all = places;
    ek_part_kind kind = part[i].media->kind;
    for (int k = i; k < n; k++) all += part[k].media->kind == kind;
    return ek_fail(EK_EINVAL, "%d %s%s attached, the prompt has %d place%s for them", all, ek_part_name(kind),
                   all == 1 ? " is" : "s are", places, places == 1 ? "" : "s");
}

static void sort(ek_part *part, int n)
{
    for (int i = 1; i < n; i++) {
        ek_part p = part[i];
        int k = i;
        for (; k > 0 && part[k - 1].first > p.first; k--) part[k] = part[k - 1];
        part[k] = p;
    }
}

/* The positions from which parts of each kind are searched next. */
typedef struct cursor {
    int at[EK_PART_KINDS];
} cursor;

static ek_err finish(ek_part *part, int n_parts, const cursor *c)
{
    for (int k = 0; k < EK_PART_KINDS; k++) {
        int left = next_of(part, n_parts, c->at[k], (ek_part_kind)k);
        if (left < n_parts) return no_place(part, n_parts, left);
    }
    sort(part, n_parts);
    return EK_OK;
}

static ek_err wrong_length(const ek_part *part, int i, int first, int run)
{
    return ek_fail(EK_EINVAL, "%s %d has %d soft tokens, the prompt has a place of %d for it (from position %d)",
                   ek_part_name(part[i].media->kind), ordinal(part, i), part[i].media->tokens, run, first);
}

ek_err ek_parts_place(ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids)
{
    cursor c = {{0}};
    for (int i = 0, run; i < n; i += run) {
        ek_part_kind kind = ek_part_kind_of(ids, token[i]);
        for (run = 1; kind < EK_PART_KINDS && i + run < n && token[i + run] == token[i];) run++;
        if (kind == EK_PART_KINDS) continue;
        int which = next_of(part, n_parts, c.at[kind], kind);
        if (which == n_parts) return no_media(i, kind);
        if (part[which].media->tokens != run) return wrong_length(part, which, i, run);
        part[which].first = i;
        c.at[kind] = which + 1;
    }
    return finish(part, n_parts, &c);
}

ek_err ek_parts_check(const ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids)
{
    int end = 0;
    for (int i = 0; i <= n_parts; i++) {
        int first = i < n_parts ? part[i].first : n;
        int64_t last = i < n_parts ? (int64_t)first + part[i].media->tokens : n;
        if (first < end || last > n)
            return ek_fail(EK_EINVAL, "%s at positions %d to %lld; parts ascend within [%d, %d)",
                           ek_part_name(part[i].media->kind), first, (long long)last - 1, end, n);
        for (int pos = end; pos < first; pos++) {
            ek_part_kind kind = ek_part_kind_of(ids, token[pos]);
            if (kind < EK_PART_KINDS) return no_media(pos, kind);
        }
        for (int pos = first; pos < last; pos++)
            if (ek_part_kind_of(ids, token[pos]) != part[i].media->kind)
                return ek_fail(EK_EINVAL, "position %d lies in a%s %s and is token %d, which is not its soft token",
                               pos, part[i].media->kind == EK_PART_IMAGE ? "n" : "", ek_part_name(part[i].media->kind),
                               token[pos]);
        end = (int)last;
    }
    return EK_OK;
}
