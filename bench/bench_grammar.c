/* Masks of structured output: bench_grammar TOKENIZER.json
 *
 * Replies are made by random choice among the allowed tokens, as if a model wrote texts of some words. For each form:
 * what a token costs (a row and the step of the automaton) with the cache as it fills, the slowest row, and how often
 * the cache had it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "text/grammar.h"
#include "text/json.h"
#include "text/reply.h"

enum { REPLIES = 20, MAX_TOKENS = 400 };

static uint64_t seed;

static uint32_t roll(uint32_t n)
{
    return (uint32_t)(ek_mix64(++seed) >> 33) % n;
}

/* A random token of a row; in long texts now and then the quote that ends them. */
static int32_t choose(const uint64_t *row, int n_words, const int32_t *closers, int n_closers)
{
    for (int i = 0; i < n_closers && roll(12) == 0; i++)
        if (closers[i] >= 0 && row[closers[i] / 64] >> closers[i] % 64 & 1) return closers[i];
    int first = (int)roll((uint32_t)n_words);
    for (int i = 0; i < n_words; i++) {
        int w = (first + i) % n_words;
        if (!row[w]) continue;
        uint64_t bits = row[w];
        for (uint32_t skip = roll((uint32_t)__builtin_popcountll(bits)); skip > 0; skip--) bits &= bits - 1;
        return w * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

static void run(const char *name, ek_vocab *v, const ek_tokenizer *t, const ek_reply_form *form, const json_t *tools,
                bool thinking)
{
    ek_grammar *g;
    int n_words = (ek_tokenizer_size(t) + 63) / 64, n = 0;
    uint64_t *row = calloc((size_t)n_words, sizeof *row);
    double compile = ek_now();
    if (ek_grammar_open(&g, v, form, tools, true)) {
        printf("%s: %s\n", name, ek_err_text());
        exit(1);
    }
    compile = ek_now() - compile;
    ek_marks m;
    ek_marks_find(&m, t);
    int32_t closers[] = {ek_tokenizer_id(t, "\""), m.id[EK_MARK_QUOTE], m.id[EK_MARK_CHANNEL_CLOSE],
                         ek_tokenizer_id(t, "}"), m.id[EK_MARK_TURN_CLOSE]};
    ek_vocab_stats before = ek_vocab_stats_of(v);
    double looks = 0, steps = 0, slowest = 0;
    for (int i = 0; i < REPLIES; i++) {
        ek_grammar_state *s = ek_grammar_state_open(g, v, NULL, 0, thinking);
        for (int k = 0; k < MAX_TOKENS; k++, n++) {
            bool all;
            double at = ek_now();
            ek_grammar_look(s, NULL, 0, n_words, row, &all);
            double took = ek_now() - at;
            looks += took;
            if (took > slowest) slowest = took;
            int32_t id = choose(row, n_words, closers, 5);
            if (id < 0) break;
            at = ek_now();
            ek_grammar_accept(s, id);
            steps += ek_now() - at;
            if (id == m.id[EK_MARK_TURN_CLOSE] || id == m.id[EK_MARK_EOS] || id == m.id[EK_MARK_RESPONSE_OPEN]) break;
        }
        ek_grammar_state_close(s);
    }
    ek_vocab_stats after = ek_vocab_stats_of(v);
    double hits = (double)(after.hits - before.hits), misses = (double)(after.misses - before.misses);
    printf("%-12s %6d tokens  row %6.1f us  step %5.2f us  slowest %7.1f us  cached %5.1f %%  compiled in %.2f ms\n",
           name, n, looks / n * 1e6, steps / n * 1e6, slowest * 1e6, 100 * hits / (hits + misses), compile * 1e3);
    ek_grammar_close(g);
    free(row);
}

static json_t *json(const char *text)
{
    json_t *v;
    if (ek_json_read(&v, text, strlen(text), 0)) {
        printf("%s\n", ek_err_text());
        exit(1);
    }
    return v;
}

int main(int argc, char **argv)
{
    ek_buf file = {0};
    ek_tokenizer *t;
    if (argc != 2 || ek_file_read(&file, argv[1], (size_t)1 << 30) || ek_tokenizer_parse(&t, file.data, file.len)) {
        printf("usage: bench_grammar TOKENIZER.json (%s)\n", ek_err_text());
        return 1;
    }
    ek_vocab *v = ek_vocab_open(t);
    double at = ek_now();
    ek_vocab_ready(v);
    printf("%d tokens: tables of %.1f MiB in %.0f ms\n", ek_tokenizer_size(t),
           (double)ek_vocab_stats_of(v).bytes / 1048576, (ek_now() - at) * 1e3);
    json_t *record = json(
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
        "\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},\"maxItems\":4},"
        "\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":200},\"score\":{\"type\":\"number\"}},"
        "\"required\":[\"name\",\"age\",\"tags\",\"note\",\"score\"]}");
    json_t *forest = json(
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"anyOf\":[{\"type\":\"string\"},"
        "{\"type\":\"number\"},{\"const\":\"x\"}]},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"},\"maxItems\":3}},"
        "\"required\":[\"v\",\"kids\"]}}}");
    json_t *tools = json(
        "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
        "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]}},"
        "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"edit\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"path\":{\"type\":\"string\"},\"text\":{\"type\":\"string\",\"maxLength\":4000}},\"required\":[\"path\","
        "\"text\"]}}}]");
    json_t *patterns = json(
        "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"name\":{\"type\":\"string\","
        "\"pattern\":\"^[a-z][a-z0-9_-]{2,29}$\"},\"mail\":{\"type\":\"string\",\"pattern\":\"^[^\\\\s@]+@[^\\\\s@]+\\\\.[a-z]{2,}$\","
        "\"maxLength\":80},\"note\":{\"type\":\"string\",\"pattern\":\"\\\\S\"}},\"required\":[\"id\",\"name\",\"mail\",\"note\"]}");
    for (int warm = 0; warm < 2; warm++) {
        run("record", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = record}, NULL, false);
        run("tree", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = forest}, NULL, false);
        run("any object", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_OBJECT}, NULL, true);
        run("patterns", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = patterns}, NULL, false);
        run("calls", v, t, &(ek_reply_form){.calls_required = true}, tools, true);
    }
    return 0;
}
