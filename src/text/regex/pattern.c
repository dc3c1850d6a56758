#include "text/regex/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { NEVER = INT32_MAX };

static uint32_t reach_of(const ek_pattern *p, int32_t state, uint32_t n)
{
    return n == 0 ? p->regex->least[state] : p->reach[(size_t)(n - 1) * (size_t)p->regex->n_states + (size_t)state];
}

/* If at least n characters can follow a state, the first one leads to a state that at least n - 1 can follow. */
static void find_reach(ek_pattern *p)
{
    const ek_regex *r = p->regex;
    for (uint32_t n = 1; n <= p->min; n++)
        for (int32_t s = 0; s < r->n_states; s++) {
            uint32_t least = NEVER;
            for (int e = r->first[s]; e < r->first[s + 1]; e++) {
                uint32_t more = reach_of(p, r->edge[e].to, n - 1);
                if (more < least) least = more;
            }
            p->reach[(size_t)(n - 1) * (size_t)r->n_states + (size_t)s] = least == NEVER ? NEVER : least + 1;
        }
}

/* --- kinds of characters --- */

/* Beyond ASCII: kind 11 has the first bytes of white space, kind 12 the others. */
static const struct {
    uint32_t lo, hi;
    int kind;
} kinds[] = {{'a', 'f', 0},        {'g', 'z', 1},
             {'A', 'F', 2},        {'G', 'Z', 3},
             {'0', '9', 4},        {'_', '_', 5},
             {'-', '-', 6},        {'.', '.', 7},
             {' ', ' ', 8},        {'/', '/', 9},
             {':', ':', 9},        {'@', '@', 9},
             {'!', '!', 10},       {'#', ',', 10},
             {';', '?', 10},       {'[', '[', 10},
             {']', '^', 10},       {'`', '`', 10},
             {'{', '~', 10},       {0x80, 0xbf, 11},
             {0x1000, 0x3fff, 11}, {0xf000, 0xffff, 11},
             {0xc0, 0xfff, 12},    {0x4000, 0xd7ff, 12},
             {0xe000, 0xefff, 12}, {0x10000, EK_REGEX_LAST, 12}};

int ek_chars_kind(int utf8, int byte, int kind)
{
    if (utf8 > 0) return kind;
    if (byte >= 0x80) {
        bool white = byte == 0xc2 || (byte >= 0xe1 && byte <= 0xe3) || byte == 0xef;
        return byte < 0xc2 || byte > 0xf4 ? EK_CHARS_ODD : white ? 1 << 11 : 1 << 12;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((uint32_t)byte >= kinds[i].lo && (uint32_t)byte <= kinds[i].hi) return 1 << kinds[i].kind;
    return EK_CHARS_ODD;
}

ek_err ek_pattern_open(ek_pattern **out, ek_regex *regex, uint32_t min, uint32_t max)
{
    *out = NULL;
    uint64_t entries = (uint64_t)min * (uint64_t)regex->n_states;
    if (entries > EK_PATTERN_ENTRIES || (uint64_t)min * (uint64_t)regex->n_edges > EK_REGEX_WORK) {
        int n_states = regex->n_states;
        ek_regex_close(regex);
        return ek_fail(EK_ETOOLARGE, "at least %u characters are too many for an automaton of %d states", min,
                       n_states);
    }
    ek_pattern *p = ek_alloc(sizeof *p);
    *p = (ek_pattern){regex, min, max, ek_alloc(sizeof *p->reach * (size_t)(entries + 1))};
    find_reach(p);
    if (!ek_pattern_can_end(p, 0, 0)) {
        ek_pattern_close(p);
        return ek_fail(EK_EINVAL, "no text of %u%s characters matches it", min, max == UINT32_MAX ? " and more" : "");
    }
    *out = p;
    return EK_OK;
}

void ek_pattern_close(ek_pattern *p)
{
    if (!p) return;
    ek_regex_close(p->regex);
    free(p->reach);
    free(p);
}

size_t ek_pattern_bytes(const ek_pattern *p)
{
    return sizeof *p + ek_regex_bytes(p->regex) + sizeof *p->reach * (size_t)p->min * (size_t)p->regex->n_states;
}

bool ek_pattern_can_end(const ek_pattern *p, int32_t state, uint32_t n)
{
    if (n > p->max) return false;
    uint32_t more = reach_of(p, state, n < p->min ? p->min - n : 0);
    return more != NEVER && (p->max == UINT32_MAX || more <= p->max - n);
}

bool ek_pattern_may_come(const ek_pattern *p, int32_t state, uint32_t lo, uint32_t hi, uint32_t n)
{
    const ek_regex *r = p->regex;
    int from = r->first[state], to = r->first[state + 1];
    while (from < to) {
        int mid = from + (to - from) / 2;
        if (r->edge[mid].hi < lo) from = mid + 1;
        else to = mid;
    }
    for (; from < r->first[state + 1] && r->edge[from].lo <= hi; from++)
        if (ek_pattern_can_end(p, r->edge[from].to, n)) return true;
    return false;
}

/* --- runs of characters of some kinds --- */

enum { RUN_STATES = 8, RUN_EDGES = 1024 };

typedef struct run {
    const ek_pattern *p;
    uint32_t n;             /* number of characters after the next one */
    bool all, any;          /* whether all texts, or any, can follow */
    int32_t to[RUN_STATES]; /* where they lead */
    int n_to, budget;
} run;

static void run_range(run *r, int32_t state, uint32_t lo, uint32_t hi)
{
    const ek_regex *x = r->p->regex;
    const ek_regex_edge *e = x->edge + x->first[state], *end = x->edge + x->first[state + 1];
    for (; e < end && e->hi < lo && r->budget > 0; e++) r->budget--;
    for (; e < end && e->lo <= hi && r->budget > 0; e++, r->budget--) {
        bool can = ek_pattern_can_end(r->p, e->to, r->n);
        r->any = r->any || can;
        r->all = r->all && can && e->lo <= lo;
        lo = e->hi < hi ? e->hi + 1 : hi + 1;
        int i = 0;
        while (i < r->n_to && r->to[i] != e->to) i++;
        if (!can || i < r->n_to) continue;
        if (i == RUN_STATES) r->budget = 0;
        else r->to[r->n_to++] = e->to;
    }
    if (lo <= hi) r->all = false;
}

static bool has_state(const int32_t *set, int n, int32_t state)
{
    while (n > 0 && set[n - 1] != state) n--;
    return n > 0;
}

/* Whether the characters lead from the states to the same states, so that nothing changes for `more` characters. */
static bool is_loop(const run *r, const int32_t *from, int n_from, uint32_t more)
{
    bool same = r->n_to == n_from && r->n >= r->p->min;
    for (int i = 0; i < n_from && same; i++) {
        same = has_state(r->to, r->n_to, from[i]);
        if (r->p->max != UINT32_MAX) same = same && r->p->regex->least[from[i]] + more <= r->p->max - r->n;
    }
    return same;
}

/* Returns the number of characters up to which all of them can follow; *ends: beyond it none can. */
static int follow(const ek_pattern *p, int32_t state, uint32_t n, const uint16_t kind[3], int max, bool *ends)
{
    int32_t from[RUN_STATES] = {state};
    int n_from = 1;
    run r = {.p = p, .budget = RUN_EDGES};
    *ends = true;
    for (int i = 1; i <= max; i++) {
        uint16_t k = kind[i < 3 ? i - 1 : 2];
        r.n = n + (uint32_t)i;
        r.all = true;
        r.any = false;
        r.n_to = 0;
        for (int s = 0; s < n_from; s++)
            for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++)
                if (k >> kinds[j].kind & 1) run_range(&r, from[s], kinds[j].lo, kinds[j].hi);
        *ends = r.budget > 0 && (r.all || !r.any);
        if (!*ends || !r.any) return i - 1;
        if (i >= 3 && is_loop(&r, from, n_from, (uint32_t)(max - i))) return max;
        n_from = r.n_to;
        memcpy(from, r.to, sizeof *from * (size_t)n_from);
    }
    return max;
}

int ek_pattern_run(const ek_pattern *p, int32_t state, uint32_t n, const uint16_t kind[3], int max)
{
    bool ends;
    int chars = follow(p, state, n, kind, max, &ends);
    return ends ? chars : -1;
}

int ek_pattern_any(const ek_pattern *p, int32_t state, uint32_t n, uint16_t some, int max)
{
    bool ends;
    return follow(p, state, n, (uint16_t[]){some, some, some}, max, &ends);
}

/* --- formats --- */

#define DAY  "(?:0[1-9]|[12]\\d|3[01])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-" DAY "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP \
    "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

/* RFC 3339 (the second 60 is not offered), 9562, 2673. */
const char *ek_pattern_of_format(const char *format)
{
    static const struct {
        const char *format, *pattern;
    } known[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        {"ipv4", "^" BYTE "(?:\\." BYTE "){3}$"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(format, known[i].format)) return known[i].pattern;
    return NULL;
}
