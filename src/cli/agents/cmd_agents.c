/* agents: the settings of a coding agent for a server of this machine, printed, or merged into the agent's own file. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/frame/cli.h"
#include "cli/frame/terminal.h"
#include "cli/local/running.h"

enum { MAX_SETTINGS = 4 << 20 };
typedef enum { json, toml, yaml, env } form;

typedef struct client {
    const char *name;
    form form;
    const char *file, *text;
} client;

static const client clients[] = {
#define CLIENT(name, form, file, text) {#name, form, file, text},
#include "cli/agents/clients.def"
};
enum { N_CLIENTS = sizeof clients / sizeof *clients };

/* ------------------------------------------------------------------ the text */

/* Appends text, filled with the values of the running server with the lowest port, or else with the default address and
 * the values of docs/AGENTS.md. False: settings cannot hold the model's name. *keys: the server has keys. */
static bool fill(ek_buf *out, bool *keys, const char *text)
{
    enum { CTX = 65536, OUT = 8192 };
    char url[300] = "http://127.0.0.1:8080", model[512] = "gemma";
    int n, ctx = CTX;
    ek_running *v = ek_running_list(&n);
    if (n) {
        ek_running_url(url, sizeof url, &v[0]);
        snprintf(model, sizeof model, "%s", v[0].model);
        ctx = v[0].ctx;
    }
    *keys = n && v[0].keys;
    free(v);
    for (; *text; text++) {
        if (!strncmp(text, "@URL@", 5)) ek_buf_str(out, url), text += 4;
        else if (!strncmp(text, "@MODEL@", 7)) ek_buf_str(out, model), text += 6;
        else if (!strncmp(text, "@CTX@", 5)) ek_buf_fmt(out, "%d", ctx), text += 4;
        else if (!strncmp(text, "@OUT@", 5)) ek_buf_fmt(out, "%d", ctx / 4 < OUT ? ctx / 4 : OUT), text += 4;
        else if (!strncmp(text, "@KEY@", 5)) text += *keys ? 4 : strcspn(text, "\n");
        else ek_buf_char(out, *text);
    }
    for (const char *c = model; *c; c++)
        if ((unsigned char)*c < ' ' || strchr("\"\\'$`\x7f", *c)) return false;
    return true;
}

/* ------------------------------------------------------------------ merging */

/* Objects are merged member by member; any other value replaces the old one. */
static void merge_json(json_t *into, json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        json_t *was = json_object_get(into, key);
        if (json_is_object(was) && json_is_object(value)) merge_json(was, value);
        else json_object_set(into, key, value);
    }
}

static ek_err add_json(ek_buf *out, const char *path, const ek_buf *was, const ek_buf *ours)
{
    json_error_t why;
    const bool any = strspn(ek_buf_text(was), " \t\r\n") < was->len;
    json_t *all = any ? json_loadb(ek_buf_text(was), was->len, JSON_REJECT_DUPLICATES, &why) : json_object();
    if (!json_is_object(all)) {
        const ek_err err =
            all ? ek_fail(EK_EFORMAT, "%s holds no JSON object; nothing is written", path)
                : ek_fail(EK_EFORMAT, "%s, line %d: %s; nothing is written: without --write the settings are printed",
                          path, why.line, why.text);
        json_decref(all);
        return err;
    }
    json_t *mine = json_loadb(ek_buf_text(ours), ours->len, 0, &why);
    merge_json(all, mine);
    char *text = json_dumps(all, JSON_INDENT(2));
    ek_buf_str(out, text);
    ek_buf_char(out, '\n');
    free(text);
    json_decref(mine);
    json_decref(all);
    return EK_OK;
}

/* The end of a line of TOML: an open string of several lines has its quote, and open lists and tables are counted. */
typedef struct place {
    char quote; /* 0: none */
    int depth;
} place;

static void follow(place *p, const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = line[i];
        const bool quotes = c == '"' || c == '\'', three = quotes && n - i >= 3 && line[i + 1] == c && line[i + 2] == c;
        if (p->quote) {
            if (three && c == p->quote) p->quote = 0, i += 2;
            else i += p->quote == '"' && c == '\\';
        } else if (c == '#') {
            return;
        } else if (three) {
            p->quote = c, i += 2;
        } else if (quotes) {
            for (i++; i < n && line[i] != c; i++) i += c == '"' && line[i] == '\\';
        } else {
            p->depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        }
    }
}

/* Whether a line of n bytes sets a key at the top of TOML that a line of ours before its first table sets, too. */
static bool sets_ours(const char *line, size_t n, const ek_buf *ours)
{
    const size_t quoted = n > 0 && (*line == '"' || *line == '\''), end = n - quoted;
    size_t key = 0;
    line += quoted;
    while (key < end && !strchr(" \t=\"'", line[key])) key++;
    const size_t gap = key + quoted + strspn(line + key + quoted, " \t");
    if (key == 0 || gap >= end || line[gap] != '=') return false;
    for (const char *at = ek_buf_text(ours); *at && *at != '['; at += strcspn(at, "\n"), at += *at == '\n')
        if (!strncmp(at, line, key) && at[key] == ' ') return true;
    return false;
}

/* Whether the line begins the table with this header, which may be spelled with blanks and quotes. */
static bool begins_table(const char *line, const char *header, size_t n)
{
    for (size_t k = 0; k < n; line++) {
        if (*line && strchr(" \t\"'", *line)) continue;
        if (*line != header[k++]) return false;
    }
    return true;
}

/* Our top keys come first, then the old text without these keys and without our table, then our table. */
static void add_toml(ek_buf *out, const ek_buf *was, const ek_buf *ours)
{
    const char *table = strstr(ek_buf_text(ours), "\n[") + 1;
    const size_t head = strcspn(table, "\n");
    bool top = true, mine = false, key = false;
    place p = {0};
    ek_buf_add(out, ek_buf_text(ours), (size_t)(table - ek_buf_text(ours)));
    for (const char *at = ek_buf_text(was); *at;) {
        const size_t n = strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n');
        const char *word = at + strspn(at, " \t");
        const bool inside = p.quote || p.depth > 0; /* of the value of an earlier line */
        if (!inside && *word == '[') top = false, mine = begins_table(word, table, head);
        if (!inside) key = top && sets_ours(word, n - (size_t)(word - at), ours);
        if (!mine && !key) ek_buf_add(out, at, n);
        follow(&p, at, n);
        at += n;
    }
    while (out->len > 1 && out->data[out->len - 1] == '\n') out->len--;
    ek_buf_str(out, "\n\n");
    ek_buf_str(out, table);
}

/* The first line behind "---", if only comments and directives stand before it; else text itself. */
static const char *behind_start(const char *text)
{
    for (const char *at = text; *at;) {
        const char *next = at + strcspn(at, "\n");
        next += *next == '\n';
        if (!strncmp(at, "---", 3)) return next;
        if (!strchr("#%\r\n", *at)) break;
        at = next;
    }
    return text;
}

/* Our block replaces the block of the same name at the top. */
static void add_yaml(ek_buf *out, const ek_buf *was, const ek_buf *ours)
{
    const size_t name = strcspn(ek_buf_text(ours), ":") + 1;
    const char *at = behind_start(ek_buf_text(was));
    bool mine = false;
    ek_buf_add(out, ek_buf_text(was), (size_t)(at - ek_buf_text(was)));
    if (out->len > 0 && out->data[out->len - 1] != '\n') ek_buf_char(out, '\n');
    ek_buf_str(out, ek_buf_text(ours));
    while (*at) {
        const size_t n = strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n');
        if (!strchr(" \t\r\n-#", *at)) mine = !strncmp(at, ek_buf_text(ours), name);
        if (!mine || *at == '#') ek_buf_add(out, at, n);
        at += n;
    }
}

/* ------------------------------------------------------------------ writing */

/* Keeps a backup of an existing file beside it. A link stays a link, and its target is written. */
static ek_err write_settings(const client *c, const char *path, const ek_buf *ours)
{
    char *real = realpath(path, NULL);
    ek_buf was = {0}, all = {0}, backup = {0};
    struct stat st;
    const bool there = !stat(path, &st);
    ek_err err = there ? ek_file_read(&was, path, MAX_SETTINGS) : EK_OK;
    if (!err && c->form == json) err = add_json(&all, path, &was, ours);
    else if (!err) (c->form == toml ? add_toml : add_yaml)(&all, &was, ours);
    ek_buf_fmt(&backup, "%s.before-evenkeel", path);
    if (!err && there && access(ek_buf_text(&backup), F_OK) != 0)
        err = ek_file_replace(ek_buf_text(&backup), ek_buf_text(&was), was.len, st.st_mode & 0777);
    if (!err) err = ek_file_replace(real ? real : path, ek_buf_text(&all), all.len, there ? st.st_mode & 0777 : 0600);
    if (!err) printf("%s is written%s%s\n", path, there ? "; as it was: " : "", there ? ek_buf_text(&backup) : "");
    ek_buf_fini(&was), ek_buf_fini(&all), ek_buf_fini(&backup);
    free(real);
    return err;
}

static int write_for(const ek_cli *cli, const client *c, const ek_buf *ours)
{
    const char *home = getenv("HOME");
    ek_buf path = {0};
    if (c->form == env)
        return ek_cli_wrong(
            cli, "%s reads the environment alone: the lines without --write belong into your shell's profile", c->name);
    if (!home || *home != '/') return ek_cli_wrong(cli, "HOME is not set");
    ek_buf_fmt(&path, "%s/%s", home, c->file);
    if (!cli->yes && !isatty(STDIN_FILENO)) {
        ek_buf_fini(&path);
        return ek_cli_wrong(cli, "nobody can be asked here; --yes writes without a question");
    }
    int status = 0;
    if (!cli->yes) fprintf(stderr, "%sWrite these settings into %s? [y/N] ", ek_buf_text(ours), ek_buf_text(&path));
    if (!cli->yes && !ek_cli_yes()) {
        fprintf(stderr, "nothing is written\n");
    } else {
        ek_file_make_folders(path.data);
        status = write_settings(c, ek_buf_text(&path), ours) ? ek_cli_failed(cli) : 0;
    }
    ek_buf_fini(&path);
    return status;
}

/* Programs and packages also name an agent: "Claude", "claude-code", "codex-cli", "KiloCode". */
static bool is_called(const char *given, const char *name)
{
    static const char *const tails[] = {"code", "cli", "agent", "ai"};
    const size_t n = strlen(name);
    if (strncasecmp(given, name, n) != 0) return false;
    given += n;
    if (!*given) return true;
    given += *given == '-' || *given == '_' || *given == ' ';
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (!strcasecmp(given, tails[i])) return true;
    return false;
}

int ek_cmd_agents(const ek_cli *cli)
{
    const client *c = NULL;
    ek_buf text = {0}, names = {0};
    for (int i = 0; i < N_CLIENTS; i++) {
        if (is_called(cli->arg, clients[i].name)) c = &clients[i];
        ek_buf_fmt(&names, "%s%s", i ? ", " : "", clients[i].name);
    }
    int status = 0;
    bool keys = false;
    if (!c) status = ek_cli_wrong(cli, "%.60s is no agent known here; there are %s", cli->arg, ek_buf_text(&names));
    else if (!fill(&text, &keys, c->text))
        status = ek_cli_wrong(
            cli, "the name of the server's model cannot stand in settings; --model-name gives it another one");
    else if (cli->write) status = write_for(cli, c, &text);
    else fputs(ek_buf_text(&text), stdout);
    if (!status && keys)
        fprintf(stderr, "the server has keys: put one %s\n",
                strstr(ek_buf_text(&text), "EVENKEEL_KEY") ? "into EVENKEEL_KEY" : "in the place of \"none\"");
    ek_buf_fini(&text), ek_buf_fini(&names);
    return status;
}
