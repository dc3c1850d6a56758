#include "hub/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

static bool plain(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

/* Whether n bytes are one of the two parts of a repository's name. */
static bool is_part(const char *s, size_t n)
{
    if (n == 0 || n > 96) return false;
    for (size_t i = 0; i < n; i++)
        if (!plain(s[i])) return false;
    return s[0] != '-' && s[0] != '.' && s[n - 1] != '-' && s[n - 1] != '.';
}

/* Whether s is ORG/NAME by the Hub's rule: letters, digits and . _ -. None of these three may be at the ends, and "--"
 * and ".." are not allowed. */
static bool hub_is_repo(const char *s)
{
    const char *slash = strchr(s, '/');
    return slash && strlen(s) < EK_HUB_REPO && !strstr(s, "--") && !strstr(s, "..") &&
           is_part(s, (size_t)(slash - s)) && is_part(slash + 1, strlen(slash + 1));
}

bool ek_hub_is_path(const char *s)
{
    if (strlen(s) >= EK_HUB_FILE) return false;
    for (;;) {
        size_t n = strcspn(s, "/");
        if (n == 0 || n > 255 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.')) return false;
        bool plain = true;
        for (size_t i = 0; i < n && plain;) i += ek_plain_char(s + i, n - i, &plain);
        if (!plain || memchr(s, '\\', n)) return false;
        if (!s[n]) return true;
        s += n + 1;
    }
}

static bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

bool ek_hub_is_commit(const char *s)
{
    return is_hex(s, 40);
}

bool ek_hub_is_hash(const char *s)
{
    return is_hex(s, 40) || is_hex(s, 64);
}

static bool copy(char *out, size_t room, const char *s, size_t n)
{
    if (n >= room) return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

/* The text after the Hub's address, which browsers and other programs write; NULL: there is no address. */
static const char *behind_address(const char *text)
{
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    if (!strncasecmp(text, "https://", 8)) text += 8;
    else if (!strncasecmp(text, "http://", 7)) text += 7;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (!strncasecmp(text, hosts[i], strlen(hosts[i]))) return text + strlen(hosts[i]);
    return NULL;
}

/* Turns ORG/NAME[/tree/REVISION][/blob/REVISION/FILE][:FILE] of an address into ORG/NAME[@REVISION][:FILE]. */
static void from_address(ek_buf *out, const char *text)
{
    const char *name = strchr(text, '/');
    const char *rest = name ? strchr(name + 1, '/') : NULL;
    if (!rest) {
        ek_buf_str(out, text);
        return;
    }
    ek_buf_add(out, text, (size_t)(rest - text));
    const char *revision = strchr(rest + 1, '/');
    if (!revision) return;
    const size_t n = strcspn(++revision, "/?#");
    if (n) ek_buf_char(out, '@'), ek_buf_add(out, revision, n);
    if (revision[n] == '/') ek_buf_char(out, ':'), ek_buf_add(out, revision + n + 1, strcspn(revision + n + 1, "?#"));
}

ek_err ek_hub_name_parse(ek_hub_name *out, const char *text)
{
    const char *behind = behind_address(text);
    if (behind) {
        ek_buf plain_name = {0};
        from_address(&plain_name, behind);
        const ek_err err = ek_hub_name_parse(out, ek_buf_text(&plain_name));
        ek_buf_fini(&plain_name);
        return err;
    }
    *out = (ek_hub_name){.revision = "main"};
    size_t left = strcspn(text, ":"), repo = strcspn(text, "@:");
    out->has_revision = text[repo] == '@';
    if (!copy(out->repo, sizeof out->repo, text, repo) || !hub_is_repo(out->repo))
        return ek_fail(EK_EINVAL, "%.200s is no repository; one is written ORG/NAME, with @REVISION or :FILE behind it",
                       text);
    if (text[repo] == '@' && (!copy(out->revision, sizeof out->revision, text + repo + 1, left - repo - 1) ||
                              !ek_hub_is_path(out->revision)))
        return ek_fail(EK_EINVAL, "%.200s: what stands behind @ is no name of a revision", text);
    if (text[left] == ':' &&
        (!copy(out->file, sizeof out->file, text + left + 1, strlen(text + left + 1)) || !ek_hub_is_path(out->file)))
        return ek_fail(EK_EINVAL, "%.200s: what stands behind : is neither a file nor a quantisation", text);
    return EK_OK;
}

void ek_hub_name_text(ek_buf *out, const ek_hub_name *name)
{
    ek_buf_str(out, name->repo);
    if (name->has_revision) ek_buf_fmt(out, "@%s", name->revision);
    if (*name->file) ek_buf_fmt(out, ":%s", name->file);
}

void ek_hub_folder(ek_buf *out, const char *repo)
{
    ek_buf_str(out, "models--");
    for (; *repo; repo++)
        if (*repo == '/') ek_buf_str(out, "--");
        else ek_buf_char(out, *repo);
}

bool ek_hub_repo_of(char *repo, const char *folder)
{
    static const char head[] = "models--";
    if (strncmp(folder, head, sizeof head - 1) != 0) return false;
    folder += sizeof head - 1;
    const char *gap = strstr(folder, "--");
    if (!gap || strlen(folder) >= EK_HUB_REPO) return false;
    snprintf(repo, EK_HUB_REPO, "%.*s/%s", (int)(gap - folder), folder, gap + 2);
    return hub_is_repo(repo);
}

/* RFC 3986: all but unreserved characters become %XX. Slashes stay if keep. */
static void escape(ek_buf *out, const char *s, bool keep)
{
    for (; *s; s++)
        if (plain(*s) || *s == '~' || (keep && *s == '/')) ek_buf_char(out, *s);
        else ek_buf_fmt(out, "%%%02X", (unsigned char)*s);
}

void ek_hub_url_list(ek_buf *out, const char *endpoint, const char *repo, const char *revision)
{
    ek_buf_fmt(out, "%s/api/models/%s/revision/", endpoint, repo);
    escape(out, revision, false);
    ek_buf_str(out, "?blobs=true");
}

void ek_hub_url_file(ek_buf *out, const char *endpoint, const char *repo, const char *commit, const char *path)
{
    ek_buf_fmt(out, "%s/%s/resolve/%s/", endpoint, repo, commit);
    escape(out, path, true);
}
