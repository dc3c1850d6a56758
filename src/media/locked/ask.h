/* Messages between a process with an untrusted file and the helper that decodes it: shared memory per file (the desk),
 * and two sockets.
 *
 *     desk      ek_desk, room for the result, the file
 *     ask       socket 0 of the helper: one message for each file, with the desk's descriptor; read by the process that
 *               decodes it
 *     control   socket 1 of the helper: ek_hello at its start, then ek_ended for each file; a byte to it ends the
 * current file
 *
 * The helper's output is untrusted as well: the asking side reads a desk only after the writing process has ended, and
 * checks every number. Inside src/media/locked and src/helper. */
#ifndef EK_MEDIA_LOCKED_ASK_H
#define EK_MEDIA_LOCKED_ASK_H

#include <stdint.h>
#include <sys/socket.h>

/* The kind of both sockets. On systems without sockets of messages, every message has one size and is read whole. */
#ifdef __linux__
#define EK_ASK_SOCKET SOCK_SEQPACKET
#else
#define EK_ASK_SOCKET SOCK_STREAM
#endif

typedef enum ek_ask_what {
    EK_ASK_IMAGE_PROBE,
    EK_ASK_IMAGE,         /* room: all pixels */
    EK_ASK_IMAGE_RESIZED, /* room: width x height pixels */
    EK_ASK_SOUND_PROBE,
    EK_ASK_SOUND /* room: the samples */
} ek_ask_what;

typedef struct ek_ask {
    uint32_t what;
    uint32_t cpu_ms; /* maximum processor time */
    uint64_t n;      /* bytes of the file */
    uint64_t room;   /* bytes for pixels or samples */
    uint64_t memory; /* maximum bytes of decoding besides the desk */
    int32_t alpha, width, height, resizer;
    int32_t max_seconds; /* of a sound */
    int32_t reserved;
} ek_ask;

typedef struct ek_decoded {
    int32_t done; /* 1 when the fields below are written */
    int32_t err;
    char text[1000];
    char format[8];
    int32_t width, height, orientation, animated; /* of the picture, or of the pixels in the room */
    uint64_t memory, held;
    int32_t rate, channels, samples, reserved;
    int64_t frames;
} ek_decoded;

typedef struct ek_desk {
    ek_ask ask;
    ek_decoded answer;
} ek_desk;

enum { EK_DESK_HEAD = 4096 };

/* The offset of the file, after head and room. */
static inline uint64_t ek_desk_file(const ek_ask *a)
{
    return EK_DESK_HEAD + (a->room + 4095) / 4096 * 4096;
}

typedef struct ek_hello {
    char version[32];
    char formats[96]; /* readable picture formats: "JPEG, PNG" */
} ek_hello;

typedef struct ek_ended {
    int32_t status; /* as waitpid gives it */
    int32_t reserved;
    uint64_t cpu_us;
} ek_ended;

#endif
