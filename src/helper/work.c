#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "helper/work.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/linux.h"
#include "decode/decode.h"
#include "media/limits.h"
#include "media/locked/ask.h"
#include "media/locked/lock.h"

/* Stacks and tables of libraries, and the memory that an allocator adds by rounding up. On macOS the allocator takes
 * addresses in large regions. */
#ifdef __APPLE__
enum { BESIDE = 512 << 20 };
#else
enum { BESIDE = 32 << 20 };
#endif

enum { NO_DESK = 3, NOT_LOCKED = 4 };

/* Receives the desk's descriptor and the number of its bytes that belong to this file. */
static int receive(uint64_t *bytes)
{
    int fd = -1;
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t n;
    while ((n = recvmsg(0, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
    const struct cmsghdr *c = n == sizeof *bytes ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void say_format(ek_decoded *a, const char *format)
{
    snprintf(a->format, sizeof a->format, "%s", format);
}

static ek_err probe_image(ek_decoded *a, const void *file, size_t n)
{
    ek_image_info info;
    EK_TRY(ek_decode_image_probe(&info, file, n));
    say_format(a, info.format);
    a->width = info.width, a->height = info.height;
    a->orientation = info.orientation, a->animated = info.animated;
    a->memory = info.memory, a->held = info.held;
    return EK_OK;
}

static ek_err decode_image(ek_decoded *a, uint8_t *room, const ek_ask *ask, const void *file)
{
    ek_image image = {0};
    if (ask->what == EK_ASK_IMAGE) {
        EK_TRY(ek_decode_image(&image, file, ask->n, (ek_alpha)ask->alpha));
        if (ek_image_bytes(&image) != ask->room) return ek_fail(EK_EPARSE, "damaged picture: its size changes");
        memcpy(room, image.rgb, ask->room);
    } else {
        if (3 * (uint64_t)ask->width * (uint64_t)ask->height != ask->room)
            return ek_fail(EK_EINTERNAL, "room for %llu bytes", (unsigned long long)ask->room);
        image.rgb = room;
        EK_TRY(ek_decode_image_resized(&image, file, ask->n, (ek_alpha)ask->alpha, ask->width, ask->height,
                                       (ek_resizer)ask->resizer));
    }
    a->width = image.width, a->height = image.height;
    return EK_OK;
}

static ek_err probe_sound(ek_decoded *a, const ek_ask *ask, const void *file)
{
    ek_sound_info info;
    EK_TRY(ek_decode_sound_probe(&info, file, ask->n, ask->max_seconds));
    say_format(a, info.format);
    a->rate = info.rate, a->channels = info.channels, a->frames = info.frames, a->samples = info.samples;
    a->memory = info.memory;
    return EK_OK;
}

static ek_err decode_sound(ek_decoded *a, uint8_t *room, const ek_ask *ask, const void *file)
{
    ek_sound s;
    EK_TRY(ek_decode_sound(&s, file, ask->n, ask->max_seconds));
    a->samples = s.samples;
    if ((size_t)s.samples * sizeof(float) != ask->room) return ek_fail(EK_EPARSE, "damaged sound: its length changes");
    memcpy(room, s.v, ask->room);
    return EK_OK;
}

static ek_err answer(ek_decoded *a, uint8_t *desk, const ek_ask *ask)
{
    uint8_t *room = desk + EK_DESK_HEAD;
    const uint8_t *file = desk + ek_desk_file(ask);
    switch (ask->what) {
    case EK_ASK_IMAGE_PROBE: return probe_image(a, file, ask->n);
    case EK_ASK_IMAGE:
    case EK_ASK_IMAGE_RESIZED: return decode_image(a, room, ask, file);
    case EK_ASK_SOUND_PROBE: return probe_sound(a, ask, file);
    case EK_ASK_SOUND: return decode_sound(a, room, ask, file);
    default: return ek_fail(EK_EINTERNAL, "work %u is not known", ask->what);
    }
}

void ek_work(pid_t parent, size_t base)
{
    struct stat st;
    uint64_t bytes;
    int fd = receive(&bytes);
    if (fd < 0 || fstat(fd, &st) || bytes < EK_DESK_HEAD || bytes > (uint64_t)st.st_size) _exit(NO_DESK);
    uint8_t *desk = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (desk == MAP_FAILED) _exit(NO_DESK);
    ek_ask ask;
    memcpy(&ask, desk, sizeof ask);
    if (ek_desk_file(&ask) + ask.n != bytes) _exit(NO_DESK);
    close(fd);
    close(0);
#ifdef EK_SANITIZED
    const size_t memory = 0; /* the sanitizer's shadow takes terabytes of addresses */
    (void)base;
#else
    const size_t memory = base + (size_t)bytes + ask.memory + BESIDE;
#endif
    const char *failed = ek_lock_decoder(parent, memory, ask.cpu_ms);
    if (failed) {
        dprintf(2, "a decoder cannot be locked up: %s: %s\n", failed, strerror(errno));
        _exit(NOT_LOCKED);
    }
    ek_decoded a = {0};
    a.err = (int32_t)answer(&a, desk, &ask);
    if (a.err) snprintf(a.text, sizeof a.text, "%s", ek_err_text());
    a.done = 1;
    memcpy(desk + offsetof(ek_desk, answer), &a, sizeof a);
    _exit(0);
}
