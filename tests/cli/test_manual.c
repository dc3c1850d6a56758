/* Man pages and completions hold every option of every command, and nothing of the tables' own marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/frame/table.h"

/* "\fB\-\-max\-tokens\fR", as a page has it. */
static void in_roff(ek_buf *out, const ek_option *o)
{
    ek_buf flag = {0};
    ek_name_flag(&flag, o->name);
    ek_buf_str(out, "\\fB");
    for (const char *c = ek_buf_text(&flag); *c; c++) ek_buf_fmt(out, *c == '-' ? "\\%c" : "%c", *c);
    ek_buf_str(out, "\\fR");
    ek_buf_fini(&flag);
}

/* Whether a command has an option that is written like o: two rows may have one flag (key and key__verify). */
static bool has_flag(const ek_option *o, int id)
{
    ek_buf flag = {0};
    bool found = false;
    ek_name_flag(&flag, o->name);
    for (int k = 0; k < ek_n_options; k++) {
        ek_buf other = {0};
        ek_name_flag(&other, ek_options[k].name);
        found |= id < EK_CMD_COUNT && ek_options[k].commands >> id & 1 &&
                 !strcmp(ek_buf_text(&other), ek_buf_text(&flag));
        ek_buf_fini(&other);
    }
    ek_buf_fini(&flag);
    return found;
}

static void test_pages_have_every_option(void **state)
{
    (void)state;
    for (int id = 0; id <= EK_CMD_COUNT; id++) {
        ek_buf page = {0};
        ek_cli_manual(&page, (ek_cmd_id)id);
        assert_null(strstr(ek_buf_text(&page), "{{"));
        const char *head = strchr(ek_buf_text(&page), '\n'); /* behind the comment, which has its own */
        assert_non_null(head);
        assert_null(strchr(head, '`'));
        for (int i = 0; i < ek_n_options; i++) {
            ek_buf row = {0};
            in_roff(&row, &ek_options[i]);
            if (!strstr(ek_buf_text(&page), ek_buf_text(&row)) == has_flag(&ek_options[i], id))
                fail_msg("%s: %s", id < EK_CMD_COUNT ? ek_cmd_name((ek_cmd_id)id) : "evenkeel", ek_buf_text(&row));
            ek_buf_fini(&row);
        }
        ek_buf_fini(&page);
    }
}

/* A line that begins with a dot or a quote is a request: only those that pages use. */
static void test_pages_have_no_other_request(void **state)
{
    (void)state;
    static const char *const requests[] = {".TH ",  ".SH ",  ".SS ",    ".TP\n", ".PP\n", ".nf\n",
                                           ".fi\n", ".nh\n", ".ad l\n", ".B ",   ".BR ",  ".\\\" "};
    for (int id = 0; id <= EK_CMD_COUNT; id++) {
        ek_buf page = {0};
        ek_cli_manual(&page, (ek_cmd_id)id);
        for (const char *line = ek_buf_text(&page); line && *line; line = strchr(line, '\n'), line += line != NULL) {
            bool known = *line != '.' && *line != '\'';
            for (size_t r = 0; r < sizeof requests / sizeof *requests && !known; r++)
                known = !strncmp(line, requests[r], strlen(requests[r]));
            if (!known) fail_msg("%.60s", line);
        }
        for (const char *c = ek_buf_text(&page); *c; c++) assert_true((unsigned char)*c < 0x80);
        ek_buf_fini(&page);
    }
}

/* The part of a script that is a command's, and in it each of its options once and no other. */
static void test_completions_have_every_option(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh"};
    for (size_t s = 0; s < 2; s++) {
        ek_buf script = {0};
        ek_cli_completion(&script, shells[s]);
        for (int id = 0; id < EK_CMD_COUNT; id++) {
            ek_buf begin = {0};
            ek_buf_fmt(&begin, "\n%s%s)\n", s ? "        " : "    ", ek_cmd_name((ek_cmd_id)id));
            const char *part = strstr(ek_buf_text(&script), ek_buf_text(&begin));
            assert_non_null(part);
            const char *end = strstr(part, s ? "--help-all[" : "--help-all'");
            assert_non_null(end);
            for (int i = 0; i < ek_n_options; i++) {
                ek_buf word = {0}, whole = {0};
                ek_name_flag(&word, ek_options[i].name);
                ek_buf_fmt(&whole, " %.*s ", (int)(end - part), part);
                bool found = false;
                for (const char *at = whole.data; !found && (at = strstr(at, ek_buf_text(&word))); at++)
                    found = strchr(" *)'", at[-1]) && strchr(" [='\n)", at[word.len]);
                if (found != has_flag(&ek_options[i], id))
                    fail_msg("%s %s: %s", shells[s], ek_cmd_name((ek_cmd_id)id), ek_buf_text(&word));
                ek_buf_fini(&word), ek_buf_fini(&whole);
            }
            ek_buf_fini(&begin);
        }
        ek_buf_fini(&script);
    }
    ek_buf fish = {0};
    ek_cli_completion(&fish, "fish");
    for (int i = 0; i < ek_n_options; i++) {
        ek_buf word = {0}, flag = {0};
        ek_name_flag(&flag, ek_options[i].name);
        ek_buf_fmt(&word, " -l %s ", ek_buf_text(&flag) + 2);
        if (ek_options[i].commands && !strstr(ek_buf_text(&fish), ek_buf_text(&word)))
            fail_msg("fish: %s", ek_buf_text(&word));
        ek_buf_fini(&word), ek_buf_fini(&flag);
    }
    ek_buf_fini(&fish);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_have_every_option),
        cmocka_unit_test(test_pages_have_no_other_request),
        cmocka_unit_test(test_completions_have_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
