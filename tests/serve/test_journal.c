/* The journal: what a line says comes back equal; damaged lines are refused with a reason; the writer loses lines and
 * never waits when a file cannot be written. */
#include "helper.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "serve/journal/journal.h"
#include "../support/files.h"

static uint64_t draw(uint64_t *state)
{
    return *state = ek_mix64(*state + 1);
}

/* A float of any size, exact in no short decimal. */
static float some_float(uint64_t *s)
{
    return ldexpf((float)(int32_t)draw(s), -(int)(draw(s) % 60));
}

static void random_line(ek_journal_line *l, uint64_t seed)
{
    uint64_t s = seed;
    bool tokens = draw(&s) % 2;
    *l = (ek_journal_line){.time = (double)(draw(&s) % 4000000000000) / 1000,
                           .id = ek_strdup(seed % 3 ? "chatcmpl-1" : "a \"quoted\"\n\xc3\xa9 id"),
                           .api = ek_strdup("/v1/chat/completions"),
                           .model = ek_strdup("0123456789abcdef"),
                           .numerics = ek_strdup("ek2 w=x kv=16:16"),
                           .finish = ek_strdup("stop"),
                           .choice = (int)(draw(&s) % 64),
                           .n_cached = (int)(draw(&s) % 100),
                           .n_tokens = (int)(draw(&s) % 20),
                           .digest = draw(&s)};
    ek_record *r = &l->record;
    r->mode = EK_RECORD_TOKENS; /* for ek_record_token */
    for (int i = 0; tokens && i < l->n_tokens; i++) ek_record_token(r, (int32_t)(draw(&s) % 300000));
    r->n_prompt = 1 + (int)(draw(&s) % 30);
    for (int i = 0; i < r->n_prompt; i++) ek_ids_add(&r->prompt, (int32_t)(draw(&s) % 300000));
    r->prompt_hash = ek_prompt_hash(r->prompt.data, r->n_prompt);
    if (!tokens) {
        ek_ids_fini(&r->prompt);
        r->mode = EK_RECORD_FACTS;
    }
    r->ignore_eos = draw(&s) % 2;
    r->forced = draw(&s) % 2;
    r->has_bounds = r->forced && draw(&s) % 2;
    if (r->has_bounds) {
        r->thinking = draw(&s) % 2;
        r->max_thinking = (int)(draw(&s) % 3);
        if (draw(&s) % 2)
            r->form = ek_strdup("{\"text\":\"json_schema\",\"schema\":{\"type\":\"a \\\" b\",\"maximum\":0.1}}");
    }
    r->sampling = (ek_sampling){.temperature = some_float(&s),
                                .top_k = (int)(draw(&s) % 1000),
                                .top_p = some_float(&s),
                                .min_p = some_float(&s),
                                .repetition_penalty = some_float(&s),
                                .presence_penalty = some_float(&s),
                                .frequency_penalty = some_float(&s),
                                .seed = draw(&s),
                                .n_bias = (int)(draw(&s) % 4)};
    ek_logit_bias *bias = ek_alloc(5 * sizeof *bias);
    for (int i = 0; i < r->sampling.n_bias; i++)
        bias[i] = (ek_logit_bias){(int32_t)(draw(&s) % 300000), i == 2 ? -INFINITY : some_float(&s)};
    r->sampling.bias = bias;
}

static void same_ids(const ek_ids *a, const ek_ids *b)
{
    assert_int_equal(a->len, b->len);
    if (a->len) assert_memory_equal(a->data, b->data, a->len * sizeof *a->data);
}

static void same_lines(const ek_journal_line *a, const ek_journal_line *b)
{
    const ek_sampling *s = &a->record.sampling, *t = &b->record.sampling;
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->numerics, b->numerics);
    assert_int_equal(a->choice, b->choice);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_true(a->digest == b->digest && a->record.prompt_hash == b->record.prompt_hash);
    assert_true(s->temperature == t->temperature && s->top_p == t->top_p && s->min_p == t->min_p);
    assert_true(s->repetition_penalty == t->repetition_penalty && s->presence_penalty == t->presence_penalty);
    assert_true(s->frequency_penalty == t->frequency_penalty && s->top_k == t->top_k && s->seed == t->seed);
    assert_int_equal(s->n_bias, t->n_bias);
    for (int i = 0; i < s->n_bias; i++)
        assert_true(s->bias[i].token == t->bias[i].token && s->bias[i].bias == t->bias[i].bias);
    assert_true(a->record.mode == b->record.mode && a->record.forced == b->record.forced &&
                a->record.ignore_eos == b->record.ignore_eos);
    assert_true(a->record.has_bounds == b->record.has_bounds && a->record.thinking == b->record.thinking);
    assert_int_equal(a->record.max_thinking, b->record.max_thinking);
    assert_true(!a->record.form == !b->record.form);
    if (a->record.form) assert_string_equal(a->record.form, b->record.form);
    same_ids(&a->record.prompt, &b->record.prompt);
    same_ids(&a->record.reply, &b->record.reply);
}

static void lines_come_back_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        ek_journal_line a, b;
        ek_buf text = {0}, again = {0};
        random_line(&a, seed);
        ek_journal_line_write(&text, &a);
        assert_int_equal(text.data[text.len - 1], '\n');
        assert_null(memchr(text.data, '\n', text.len - 1));
        assert_int_equal(ek_journal_line_read(&b, text.data, text.len - 1), EK_OK);
        same_lines(&a, &b);
        ek_journal_line_write(&again, &b);
        assert_string_equal(text.data, again.data);
        ek_journal_line_fini(&a);
        ek_journal_line_fini(&b);
        ek_buf_fini(&text);
        ek_buf_fini(&again);
    }
}

/* A line that was cut anywhere is no line; a byte that was changed gives an error or a line, never a crash. */
static void damaged_lines_are_refused(void **state)
{
    (void)state;
    ek_journal_line a, b;
    ek_buf text = {0};
    random_line(&a, 77);
    ek_journal_line_write(&text, &a);
    for (size_t n = 0; n + 1 < text.len; n++) {
        assert_int_not_equal(ek_journal_line_read(&b, text.data, n), EK_OK);
        ek_journal_line_fini(&b);
    }
    for (size_t i = 0; i + 1 < text.len; i++) {
        char was = text.data[i];
        text.data[i] = (char)(was ^ 1);
        (void)ek_journal_line_read(&b, text.data, text.len - 1);
        ek_journal_line_fini(&b);
        text.data[i] = was;
    }
    ek_journal_line_fini(&a);
    ek_buf_fini(&text);
}

static const struct {
    const char *was, *becomes, *error;
} mistakes[] = {
    {"\"seed\":\"", "\"seed\":\"-", "seed: a text of digits is needed"},
    {"\"digest\":\"", "\"digest\":\"0", "digest: a text of 16 hex digits is needed"},
    {"\"n_tokens\":", "\"n_tokens\":-", "n_tokens: a whole number is needed"},
    {"\"n_prompt\":", "\"n_prompt\":1", "prompt: a list of"},
    {"\"temperature\":", "\"temperature\":null,\"x\":", "temperature: a number is needed"},
    {"\"bias\":[", "\"bias\":[[1],", "bias: a list of [token, number or null] is needed"},
    {"\"prompt\":[", "\"prompt\":[0,", "prompt: a list of"},
    {"\"prompt_hash\":\"", "\"prompt_hash\":\"0000000000000000\",\"was\":\"", "prompt: its hash is not prompt_hash"},
    {"\"ignore_eos\":", "\"ignore_eos\":1,\"x\":", "ignore_eos: true or false is needed"},
    {"{\"time\"", "{\"lost\":0,\"time\"", "lost: a whole number from 1 is needed"},
};

static void mistakes_are_named(void **state)
{
    (void)state;
    ek_journal_line a, b;
    ek_buf text = {0};
    uint64_t seed = 1;
    for (;; seed++) { /* one with tokens */
        random_line(&a, seed);
        if (a.record.mode == EK_RECORD_TOKENS && a.n_tokens > 0) break;
        ek_journal_line_fini(&a);
    }
    ek_journal_line_write(&text, &a);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char *at = strstr(text.data, mistakes[i].was);
        assert_non_null(at);
        ek_buf bad = {0};
        ek_buf_add(&bad, text.data, (size_t)(at - text.data));
        ek_buf_str(&bad, mistakes[i].becomes);
        ek_buf_str(&bad, at + strlen(mistakes[i].was));
        assert_int_equal(ek_journal_line_read(&b, bad.data, bad.len - 1), EK_EINVAL);
        if (!strstr(ek_err_text(), mistakes[i].error)) fail_msg("%s: %s", mistakes[i].error, ek_err_text());
        ek_journal_line_fini(&b);
        ek_buf_fini(&bad);
    }
    ek_journal_line_fini(&a);
    ek_buf_fini(&text);
}

/* --- the writer --- */

static char *dir;

static void path_of(char *out, size_t room, const char *name)
{
    snprintf(out, room, "%s/%s", dir, name);
}

static void add(ek_journal *j, int choice)
{
    ek_journal_line l = {.id = "id", .api = "/api", .finish = "stop", .choice = choice, .digest = 1};
    const int32_t tokens[] = {2, 5, 7};
    const ek_request_opts q = {.tokens = tokens, .n_tokens = 3};
    l.record.mode = EK_RECORD_TOKENS;
    ek_record_begin(&l.record, &q);
    ek_journal_add(j, &l);
}

static ek_journal *open_journal(const char *path, size_t max_pending)
{
    ek_journal *j;
    ek_journal_opts o = {.path = path, .model = "m", .numerics = "ek2", .prompts = true, .max_pending = max_pending};
    assert_int_equal(ek_journal_open(&j, &o), EK_OK);
    return j;
}

/* Counts a file's good, damaged and lost lines. */
typedef struct counts {
    int good, bad, lost;
} counts;

static counts count(const char *path)
{
    counts c = {0};
    ek_journal_file *f;
    assert_int_equal(ek_journal_file_open(&f, path), EK_OK);
    for (int64_t i = 0; i < ek_journal_file_lines(f); i++) {
        ek_journal_line l;
        if (ek_journal_file_read(f, i, &l)) {
            assert_null(strstr(ek_err_text(), path)); /* the caller has path and number */
            c.bad++;
        } else if (l.lost > 0) c.lost += (int)l.lost;
        else c.good++;
        ek_journal_line_fini(&l);
    }
    ek_journal_file_close(f);
    return c;
}

/* As logrotate does it: renamed, with and without a new empty file in its place. */
static void a_renamed_file_is_followed_by_a_new_one(void **state)
{
    (void)state;
    for (int create = 0; create < 2; create++) {
        char path[256], old[300];
        path_of(path, sizeof path, create ? "made" : "journal");
        snprintf(old, sizeof old, "%s.1", path);
        ek_journal *j = open_journal(path, 0);
        add(j, 0);
        struct stat st;
        while (stat(path, &st) || st.st_size == 0) usleep(1000);
        assert_int_equal(rename(path, old), 0);
        if (create) put_file(dir, "made", "", 0);
        add(j, 1);
        ek_journal_close(j);
        counts a = count(old), b = count(path);
        assert_int_equal(a.good, 1);
        assert_int_equal(b.good, 1);
        assert_int_equal(a.bad + b.bad, 0);
    }
}

static void a_cut_line_stays_alone(void **state)
{
    (void)state;
    char path[256];
    path_of(path, sizeof path, "cut");
    ek_journal *j = open_journal(path, 0);
    add(j, 0);
    add(j, 1);
    ek_journal_close(j);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 5), 0); /* as after a crash */
    j = open_journal(path, 0);
    add(j, 2);
    ek_journal_close(j);
    counts c = count(path);
    assert_int_equal(c.good, 2);
    assert_int_equal(c.bad, 1);
}

/* A full disk (a link to /dev/full), then a whole one again. */
static void lost_lines_are_counted(void **state)
{
    (void)state;
    char path[256];
    path_of(path, sizeof path, "full");
    if (access("/dev/full", W_OK)) skip();
    assert_int_equal(symlink("/dev/full", path), 0);
    ek_journal *j = open_journal(path, 0);
    for (int i = 0; i < 3; i++) add(j, i);
    usleep(100000); /* the writer has tried */
    assert_int_equal(unlink(path), 0);
    add(j, 3);
    ek_journal_close(j);
    counts c = count(path);
    assert_int_equal(c.good, 1);
    assert_int_equal(c.lost, 3);
    assert_int_equal(c.bad, 0);
}

/* Lines come faster than the thread writes them. */
static void what_waits_is_limited(void **state)
{
    (void)state;
    char path[256];
    path_of(path, sizeof path, "slow");
    ek_journal *j = open_journal(path, 3000); /* two lines */
    for (int i = 0; i < 2000; i++) add(j, i);
    usleep(100000);
    add(j, 0); /* brings the count of what was lost */
    assert_true(ek_journal_lost(j) > 0);
    ek_journal_close(j);
    counts c = count(path);
    assert_int_equal(c.good + c.lost, 2001);
    assert_true(c.lost > 0);
    assert_int_equal(c.bad, 0);
}

static void add_with_form(ek_journal *j, const char *id, int choice, const char *form)
{
    ek_journal_line l = {.id = id, .api = "/api", .finish = "stop", .choice = choice};
    const int32_t tokens[] = {2, 5, 7};
    const ek_request_opts q = {.tokens = tokens, .n_tokens = 3};
    l.record.mode = EK_RECORD_TOKENS;
    ek_record_begin(&l.record, &q);
    l.record.forced = true;
    ek_record_bounds(&l.record, form, !form, false, 0);
    ek_journal_add(j, &l);
}

static void write_bytes(const char *path, const char *text, size_t n)
{
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, n, to), n);
    assert_int_equal(fclose(to), 0);
}

/* Lines that are empty take no memory, and there is a maximum of others. */
static void lines_are_bounded(void **state)
{
    (void)state;
    enum { EMPTY = 1 << 24 };
    char path[256];
    path_of(path, sizeof path, "newlines");
    char *text = malloc(2 * (EK_JOURNAL_LINES_MAX + 1) + EMPTY);
    assert_non_null(text);
    memset(text, '\n', EMPTY);
    text[EMPTY - 2] = 'x';
    write_bytes(path, text, EMPTY);
    ek_journal_file *f;
    ek_journal_line l;
    assert_int_equal(ek_journal_file_open(&f, path), EK_OK);
    assert_int_equal(ek_journal_file_lines(f), 1);
    assert_int_equal(ek_journal_file_number(f, 0), EMPTY - 1);
    assert_true(ek_journal_file_read(f, 0, &l) != EK_OK);
    assert_non_null(strstr(ek_err_text(), "JSON, line 1 column 1: "));
    ek_journal_line_fini(&l);
    ek_journal_file_close(f);
    for (int i = 0; i <= EK_JOURNAL_LINES_MAX; i++) text[2 * i] = 'x', text[2 * i + 1] = '\n';
    write_bytes(path, text, 2 * EK_JOURNAL_LINES_MAX);
    assert_int_equal(ek_journal_file_open(&f, path), EK_OK);
    assert_int_equal(ek_journal_file_lines(f), EK_JOURNAL_LINES_MAX);
    ek_journal_file_close(f);
    write_bytes(path, text, 2 * (EK_JOURNAL_LINES_MAX + 1));
    assert_int_equal(ek_journal_file_open(&f, path), EK_ETOOLARGE);
    assert_non_null(strstr(ek_err_text(), "more than 10000000 lines"));
    unlink(path);
    free(text);
}

/* The replies of one request share a form, which can be large: the first one's line has it. */
static void a_form_is_written_once(void **state)
{
    (void)state;
    enum { N = 64, SIZE = 20000 };
    char path[256];
    static char form[SIZE + 32];
    path_of(path, sizeof path, "forms");
    int n = snprintf(form, sizeof form, "{\"text\":\"");
    memset(form + n, 'x', SIZE);
    memcpy(form + n + SIZE, "\"}", 3);
    ek_journal *j = open_journal(path, 3 * sizeof form + N * 2000);
    for (int i = 0; i < N; i++) {
        add_with_form(j, "a", i, i == 0 ? form : NULL);
        if (i % 2) add_with_form(j, "b", i, NULL); /* whose first line is not there */
    }
    ek_journal_close(j);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size < 2 * SIZE + N * 1000);
    ek_journal_file *f;
    assert_int_equal(ek_journal_file_open(&f, path), EK_OK);
    int64_t n_lines = ek_journal_file_lines(f);
    assert_int_equal(n_lines, N + N / 2);
    for (int64_t i = n_lines - 1; i >= 0; i--) { /* in any order */
        ek_journal_line l;
        assert_int_equal(ek_journal_file_read(f, i, &l), EK_OK);
        assert_int_equal(l.record.has_bounds, !strcmp(l.id, "a"));
        if (l.record.has_bounds) assert_string_equal(l.record.form, form);
        else assert_null(l.record.form);
        ek_journal_line_fini(&l);
    }
    ek_journal_file_close(f);
}

static void a_file_that_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    ek_journal *j;
    ek_journal_opts o = {.path = "/nonexistent/journal", .model = "m", .numerics = "ek2"};
    assert_int_equal(ek_journal_open(&j, &o), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "/nonexistent/journal"));
    ek_journal_close(NULL);
    assert_int_equal(ek_journal_mode(NULL), EK_RECORD_NONE);
}

static int make_dir(void **state)
{
    (void)state;
    ek_log_set(EK_LOG_ERROR);
    dir = temp_dir();
    return 0;
}

static int drop_dir(void **state)
{
    (void)state;
    remove_dir(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_back_equal),  cmocka_unit_test(damaged_lines_are_refused),
        cmocka_unit_test(mistakes_are_named),     cmocka_unit_test(a_renamed_file_is_followed_by_a_new_one),
        cmocka_unit_test(a_cut_line_stays_alone), cmocka_unit_test(lost_lines_are_counted),
        cmocka_unit_test(lines_are_bounded),      cmocka_unit_test(a_form_is_written_once),
        cmocka_unit_test(what_waits_is_limited),  cmocka_unit_test(a_file_that_cannot_be_opened_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
