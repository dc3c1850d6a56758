#include "media/video/ffmpeg.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "media/header.h"
#include "media/locked/lock.h"

/* --- the kind of a file --- */

static const ek_container mov = {"MP4", "mov", "video/mp4"}, webm = {"WebM", "matroska", "video/webm"},
                          avi = {"AVI", "avi", "video/x-msvideo"}, ogg = {"Ogg", "ogg", "video/ogg"},
                          flv = {"FLV", "flv", "video/x-flv"}, mpeg = {"MPEG", "mpeg", "video/mpeg"},
                          mpegts = {"MPEG-TS", "mpegts", "video/mp2t"}, asf = {"ASF", "asf", "video/x-ms-wmv"},
                          gif = {"GIF", "gif", "video/gif"};

static const char formats[] = "MP4 (MOV), WebM (Matroska), AVI, Ogg, FLV, MPEG, MPEG-TS, ASF (WMV) and GIF";

static bool begins(const uint8_t *p, size_t n, size_t at, const char *with, size_t n_with)
{
    return n >= at + n_with && memcmp(p + at, with, n_with) == 0;
}

static bool is_mov(const uint8_t *p, size_t n)
{
    static const char *const boxes[] = {"ftyp", "moov", "mdat", "wide", "free", "skip"};
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        if (begins(p, n, 4, boxes[i], 4)) return true;
    return false;
}

static bool is_ts(const uint8_t *p, size_t n)
{
    enum { PACKET = 188 };
    return n > 2 * PACKET && p[0] == 0x47 && p[PACKET] == 0x47 && p[2 * PACKET] == 0x47;
}

/* NULL: no readable kind. */
static const ek_container *container_find(const uint8_t *p, size_t n)
{
    static const struct {
        const char *begin;
        size_t n;
        const ek_container *is;
    } known[] = {{"\x1A\x45\xDF\xA3", 4, &webm},
                 {"OggS", 4, &ogg},
                 {"FLV\x01", 4, &flv},
                 {"\0\0\x01\xBA", 4, &mpeg},
                 {"\0\0\x01\xB3", 4, &mpeg},
                 {"\x30\x26\xB2\x75", 4, &asf},
                 {"GIF87a", 6, &gif},
                 {"GIF89a", 6, &gif}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(p, n, 0, known[i].begin, known[i].n)) return known[i].is;
    if (begins(p, n, 0, "RIFF", 4) && begins(p, n, 8, "AVI ", 4)) return &avi;
    return is_mov(p, n) ? &mov : is_ts(p, n) ? &mpegts : NULL;
}

const char *ek_video_type(const void *bytes, size_t n)
{
    const ek_container *k = container_find(bytes, n);
    return k ? k->type : NULL;
}

ek_err ek_container_check(const ek_container **out, const uint8_t *p, size_t n)
{
    EK_TRY(ek_media_check_bytes("video", n));
    *out = container_find(p, n);
    if (*out) return EK_OK;
    char begin[3 * 4 + 1] = "";
    for (size_t i = 0; i < 4 && i < n; i++) snprintf(begin + 3 * i, 4, "%02x ", p[i]);
    begin[3 * (n < 4 ? n : 4) - 1] = '\0';
    return ek_fail(EK_EINVAL, "not a video of a known kind: it begins with the bytes %s; known are %s", begin, formats);
}

enum { MAX_TEXT = 64 << 10 };
#define MEMORY ((size_t)2 << 30) /* bytes of address space; the libraries alone take half a gigabyte */

/* --- one run --- */

void ek_call_add(ek_call *c, const char *const *words)
{
    for (; *words; words++) {
        EK_ASSERT(c->n < (int)(sizeof c->argv / sizeof *c->argv) - 1);
        c->argv[c->n++] = *words;
    }
}

/* Opens the file only by its descriptor, in any protocol. */
void ek_call_begin(ek_call *c, const ek_ffmpeg *f, const ek_container *k)
{
    const char *const quiet[] = {f->path, "-hide_banner", "-nostdin", "-loglevel", "error", NULL};
    const char *const bounds[] = {
        "-threads", "1",  "-filter_threads", "1", "-protocol_whitelist", f->has_fd ? "fd" : "file", "-format_whitelist",
        k->reader,  "-f", k->reader,         NULL};
    const char *const alone[] = {"-enable_drefs", "0", "-use_absolute_path", "0", NULL};
    const char *const input[] = {"-flags", "+bitexact", "-i", f->has_fd ? "fd:" : "file:/proc/self/fd/0",
                                 "-map",   "0:V:0",     NULL};
    ek_call_add(c, quiet);
    ek_call_add(c, bounds);
    if (!strcmp(k->reader, "mov")) ek_call_add(c, alone);
    ek_call_add(c, input);
}

ek_err ek_call_start(ek_child *c, const ek_call *what, int file)
{
    const ek_child_opts o = {.argv = what->argv,
                             .input = file,
                             .cpu_seconds = EK_VIDEO_CPU_SECONDS,
                             .seconds = EK_VIDEO_WALL_SECONDS,
                             .memory = MEMORY};
    if (file >= 0 && lseek(file, 0, SEEK_SET) < 0) return ek_fail(EK_EIO, "a video in memory: %s", strerror(errno));
    return ek_child_start(c, &o);
}

/* The beginning of ffmpeg's own message, after the messages of its libraries. */
static const char *words_of(const ek_child *c)
{
    const char *s = c->says;
    while (!strncmp(s, "Warning: ", 9)) {
        s += strcspn(s, "\n");
        s += *s == '\n';
    }
    return s;
}

/* ffmpeg's last words, which quote an untrusted file: one line, bounded, printable. */
static const char *call_says(const ek_child *c, char room[EK_CHILD_WORDS])
{
    const char *s = words_of(c), *in = strstr(s, "] "); /* "[mov,mp4,… @ 0x55…] " */
    if (*s == '[' && in && memchr(s, '\n', (size_t)(in - s)) == NULL) s = in + 2;
    return ek_child_words(room, s);
}

static ek_err damaged(const ek_container *k, const char *why)
{
    return ek_fail(EK_EPARSE, "damaged %s video: %s", k->name, why);
}

ek_err ek_call_end(ek_child *c, ek_err err, const ek_container *k, bool strict)
{
    char words[EK_CHILD_WORDS];
    const ek_child_end end = ek_child_finish(c, err != EK_OK);
    if (err == EK_ETIMEOUT || (!err && end.late) || end.signal == SIGXCPU)
        return ek_fail(EK_ETOOLARGE,
                       "%s video that takes more than %d seconds of processor time, or %d on the clock, to decode",
                       k->name, EK_VIDEO_CPU_SECONDS, EK_VIDEO_WALL_SECONDS);
    if (err) return err;
    if (!ek_is_wanted()) return EK_ECANCELLED;
    if (strstr(c->says, "matches no streams")) return ek_fail(EK_EINVAL, "%s file without a video in it", k->name);
    if (strstr(c->says, "Cannot allocate memory"))
        return ek_fail(EK_ETOOLARGE, "%s video that takes more than %zu bytes of memory to decode", k->name, MEMORY);
    if (end.status != 0 && end.status != -1)
        return damaged(k, *words_of(c) ? call_says(c, words) : "it cannot be read");
    if (end.status != 0) return damaged(k, "reading it ended ffmpeg");
    return *words_of(c) && strict ? damaged(k, call_says(c, words)) : EK_OK;
}

/* --- the program --- */

/* Whether ffmpeg's list of protocols has a line with the word. */
static bool lists(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *s = text; (s = strstr(s, word)); s++) {
        const bool whole = s > text && s[-1] == ' ' && (s[n] == '\n' || s[n] == '\0');
        if (whole) return true;
    }
    return false;
}

/* Reads the first word after "ffmpeg version ". */
static ek_err read_version(ek_ffmpeg *f, const char *text)
{
    static const char words[] = "ffmpeg version ";
    const char *s = strstr(text, words);
    if (!s) return ek_fail(EK_EUNSUPPORTED, "%s does not say that it is ffmpeg", f->path);
    s += sizeof words - 1;
    const int n = (int)strcspn(s, " \n"), version = atoi(s);
    f->has_fps_mode = version == 0 || version >= 6; /* builds between releases have no version number */
    if (version > 0 && version < 4) return ek_fail(EK_EUNSUPPORTED, "%s is version %.*s, 4 is needed", f->path, n, s);
    snprintf(f->text, sizeof f->text, "%s %.*s, locked up by %s", f->path, n < 40 ? n : 40, s,
             ek_ffmpeg_has_landlock() ? "seccomp, Landlock" : "seccomp");
    return EK_OK;
}

static ek_err try_program(ek_ffmpeg *f)
{
    const char *const argv[] = {f->path, "-nostdin", "-protocols", NULL};
    ek_call what = {.n = 0};
    ek_child c;
    ek_buf protocols = {0};
    char piece[4096];
    ek_err err = EK_OK;
    ek_call_add(&what, argv);
    EK_TRY(ek_call_start(&c, &what, -1));
    for (size_t n = 1; !err && n > 0 && protocols.len < MAX_TEXT;) {
        err = ek_child_read(&c, piece, sizeof piece, &n);
        ek_buf_add(&protocols, piece, n);
    }
    const ek_child_end end = ek_child_finish(&c, err != EK_OK);
    f->has_fd = lists(ek_buf_text(&protocols), "fd");
    ek_buf_fini(&protocols);
    if (err) return ek_fail_in(EK_EIO, "%s", f->path);
    char words[EK_CHILD_WORDS];
    if (end.status != 0)
        return ek_fail(EK_EIO, "%s does not run locked up: %s", f->path,
                       *c.says ? call_says(&c, words) : "it says nothing");
    return read_version(f, c.says);
}

ek_err ek_ffmpeg_open(ek_ffmpeg **out, const char *path)
{
    ek_ffmpeg *f = ek_alloc(sizeof *f);
    ek_err err = ek_child_find(&f->path, "ffmpeg", "ffmpeg", path);
    if (!err) err = try_program(f);
    if (err) {
        ek_ffmpeg_close(f);
        f = NULL;
    }
    *out = f;
    return err;
}

void ek_ffmpeg_close(ek_ffmpeg *f)
{
    if (!f) return;
    free(f->path);
    free(f);
}

bool ek_ffmpeg_has_landlock(void)
{
    return ek_lock_landlock() > 0;
}

const char *ek_ffmpeg_text(const ek_ffmpeg *f)
{
    return f->text;
}
