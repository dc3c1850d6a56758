#include "serve/events/peers.h"

#include <string.h>
#include <strings.h>

enum { GREETED, READY, OPEN }; /* the awaited input: greeting, READY, anything */
enum { MORE = 1, LONG = 2, COMMAND = 4 };
enum { GREETING = 64, VERSION = 10, MECHANISM = 12, MECHANISM_ROOM = 20, CONTEXT_MAX = 16 };

static uint64_t number(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | p[i];
    return v;
}

/* --- out --- */

static void frame(ek_buf *out, const void *data, size_t n, int flags)
{
    const int bytes = n > 255 ? 8 : 1;
    ek_buf_char(out, (char)(flags | (bytes == 8 ? LONG : 0)));
    for (int i = bytes - 1; i >= 0; i--) ek_buf_char(out, (char)((uint64_t)n >> 8 * i));
    ek_buf_add(out, data, n);
}

void ek_zmtp_frame(ek_buf *out, const void *data, size_t n, bool more)
{
    frame(out, data, n, more ? MORE : 0);
}

void ek_zmtp_greet(ek_buf *out, bool router)
{
    static const char head[GREETING] = {
        [0] = (char)0xff, [8] = 1, [9] = 0x7f, [VERSION] = 3, [MECHANISM] = 'N', [13] = 'U', [14] = 'L', [15] = 'L'};
    static const char pub[] = "\5READY\13Socket-Type\0\0\0\4XPUB",
                      asked[] = "\5READY\13Socket-Type\0\0\0\6ROUTER\10Identity\0\0\0\0";
    ek_buf_add(out, head, sizeof head);
    if (router) frame(out, asked, sizeof asked - 1, COMMAND);
    else frame(out, pub, sizeof pub - 1, COMMAND);
}

/* --- in --- */

static void drop(ek_zmtp *z, size_t n)
{
    memmove(z->in, z->in + n, z->n -= n);
}

static ek_err check_greeting(const ek_zmtp *z)
{
    static const char null[MECHANISM_ROOM] = "NULL";
    if (z->n > 0 && z->in[0] != 0xff) return ek_fail(EK_EINVAL, "it does not speak ZMTP");
    if (z->n > 9 && !(z->in[9] & 1)) return ek_fail(EK_EINVAL, "it does not speak ZMTP");
    if (z->n > VERSION && z->in[VERSION] < 3) return ek_fail(EK_EINVAL, "it speaks ZMTP %d", z->in[VERSION]);
    if (z->n >= MECHANISM + MECHANISM_ROOM && memcmp(z->in + MECHANISM, null, MECHANISM_ROOM))
        return ek_fail(EK_EINVAL, "it wants another mechanism than NULL");
    return EK_OK;
}

/* Finds the frame at the beginning: offset and length of its body. *whole false: it is incomplete. */
static ek_err find_frame(const ek_zmtp *z, size_t *at, size_t *n, bool *whole)
{
    *whole = false;
    if (z->n == 0) return EK_OK;
    const int flags = z->in[0];
    const size_t head = flags & LONG ? 9 : 2;
    if (flags & ~(MORE | LONG | COMMAND) || (flags & COMMAND && flags & MORE))
        return ek_fail(EK_EINVAL, "a frame has flags %d", flags);
    if (z->n < head) return EK_OK;
    const uint64_t size = number(z->in + 1, (int)head - 1);
    if (size > EK_ZMTP_FRAME_MAX)
        return ek_fail(EK_EINVAL, "a frame has %llu bytes, at most %d are taken", (unsigned long long)size,
                       EK_ZMTP_FRAME_MAX);
    *at = head, *n = (size_t)size;
    *whole = z->n >= head + *n;
    return EK_OK;
}

/* Whether the frame is the command of this name; *rest: the bytes after the name. */
static bool is_command(const uint8_t *p, size_t n, const char *name, const uint8_t **rest, size_t *n_rest)
{
    const size_t len = strlen(name);
    if (n < len + 1 || p[0] != len || memcmp(p + 1, name, len) != 0) return false;
    *rest = p + len + 1, *n_rest = n - len - 1;
    return true;
}

static bool fits(const ek_zmtp *z, const uint8_t *type, size_t n)
{
    static const char *const asks[] = {"DEALER", "REQ", "ROUTER"}, *const subscribes[] = {"SUB", "XSUB"};
    const char *const *types = z->router ? asks : subscribes;
    for (int i = 0; i < (z->router ? 3 : 2); i++)
        if (n == strlen(types[i]) && !memcmp(type, types[i], n)) return true;
    return false;
}

/* Reads the properties; only the socket's type matters. */
static ek_err read_ready(const ek_zmtp *z, const uint8_t *p, size_t n)
{
    static const char name[] = "Socket-Type";
    if (!is_command(p, n, "READY", &p, &n)) return ek_fail(EK_EINVAL, "its first command is not READY");
    bool good = false;
    while (n > 0) {
        const size_t n_name = p[0];
        if (n < 1 + n_name + 4) return ek_fail(EK_EINVAL, "READY is cut off");
        const uint64_t n_value = number(p + 1 + n_name, 4);
        if (n_value > n - 5 - n_name) return ek_fail(EK_EINVAL, "READY is cut off");
        if (n_name == sizeof name - 1 && !strncasecmp((const char *)p + 1, name, n_name))
            good = fits(z, p + 5 + n_name, (size_t)n_value);
        n -= 5 + n_name + (size_t)n_value, p += 5 + n_name + (size_t)n_value;
    }
    return good ? EK_OK : ek_fail(EK_EINVAL, "it is no socket that can %s", z->router ? "ask" : "subscribe");
}

static ek_zmtp_news subscription(const ek_zmtp *z, bool on, const uint8_t *topic, size_t n)
{
    if (n > strlen(z->topic) || memcmp(topic, z->topic, n) != 0) return EK_ZMTP_OTHER;
    return on ? EK_ZMTP_SUBSCRIBED : EK_ZMTP_UNSUBSCRIBED;
}

static ek_err read_command(const ek_zmtp *z, const uint8_t *p, size_t n, ek_zmtp_news *news, ek_buf *out)
{
    const uint8_t *rest;
    size_t k;
    if (is_command(p, n, "ERROR", &rest, &k)) return ek_fail(EK_EINVAL, "it refuses");
    if (is_command(p, n, "SUBSCRIBE", &rest, &k) && !z->router) *news = subscription(z, true, rest, k);
    if (is_command(p, n, "CANCEL", &rest, &k) && !z->router) *news = subscription(z, false, rest, k);
    if (!is_command(p, n, "PING", &rest, &k) || k < 2) return EK_OK;
    uint8_t pong[5 + CONTEXT_MAX] = "\4PONG";
    k = k - 2 < CONTEXT_MAX ? k - 2 : CONTEXT_MAX; /* the context comes after the time to live */
    memcpy(pong + 5, rest + 2, k);
    frame(out, pong, 5 + k, COMMAND);
    *news = EK_ZMTP_PING;
    return EK_OK;
}

/* Takes a frame of a message to a router. */
static ek_zmtp_news take_frame(ek_zmtp *z, const uint8_t *p, size_t n, bool more)
{
    if (z->n_frames < 2) z->size[z->n_frames] = n;
    if (z->n_frames == 1 && n == sizeof z->number) memcpy(z->number, p, n);
    if (z->n_frames < 3) z->n_frames++;
    if (more) return EK_ZMTP_OTHER;
    const bool good = z->n_frames == 2 && z->size[0] == 0 && z->size[1] == sizeof z->number;
    z->n_frames = 0;
    return good ? EK_ZMTP_REQUEST : EK_ZMTP_BAD_REQUEST;
}

static ek_err read_frame(ek_zmtp *z, const uint8_t *p, size_t n, ek_zmtp_news *news, ek_buf *out)
{
    const int flags = z->in[0];
    *news = EK_ZMTP_OTHER;
    if (z->state == READY) {
        if (!(flags & COMMAND)) return ek_fail(EK_EINVAL, "its first command is not READY");
        EK_TRY(read_ready(z, p, n));
        z->state = OPEN;
        *news = EK_ZMTP_READY;
        return EK_OK;
    }
    if (flags & COMMAND) return read_command(z, p, n, news, out);
    if (z->router) *news = take_frame(z, p, n, flags & MORE);
    else if (n > 0 && p[0] <= 1) *news = subscription(z, p[0], p + 1, n - 1);
    return EK_OK;
}

ek_err ek_zmtp_next(ek_zmtp *z, ek_zmtp_news *news, ek_buf *out)
{
    size_t at, n;
    bool whole;
    *news = EK_ZMTP_NOTHING;
    if (z->state == GREETED) {
        EK_TRY(check_greeting(z));
        if (z->n < GREETING) return EK_OK;
        drop(z, GREETING);
        z->state = READY;
    }
    EK_TRY(find_frame(z, &at, &n, &whole));
    if (!whole) return EK_OK;
    EK_TRY(read_frame(z, z->in + at, n, news, out));
    drop(z, at + n);
    return EK_OK;
}
