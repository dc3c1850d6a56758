/* Log on standard error, one line per call; and progress. */
#ifndef EK_BASE_LOG_H
#define EK_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NOTICE: what happens once on a machine, so that a command which opens models again and again leaves it. */
typedef enum { EK_LOG_ERROR, EK_LOG_WARN, EK_LOG_NOTICE, EK_LOG_INFO, EK_LOG_DEBUG } ek_log_level;

void ek_log_set(ek_log_level max); /* lines above this level are dropped; INFO at first */
__attribute__((format(printf, 2, 3))) void ek_log(ek_log_level level, const char *fmt, ...);

/* Where the lines of a library's engine go in place of standard error, without their ends, one at a time. fn logs
 * nothing itself; NULL: they go nowhere. From the first sink on no line and no progress goes to standard error: a
 * library has no say over its process's streams. */
typedef void ek_log_fn(void *arg, int level, const char *line);
typedef struct ek_log_sink ek_log_sink;
ek_log_sink *ek_log_sink_open(ek_log_fn *fn, void *arg);
void ek_log_sink_close(ek_log_sink *s); /* no thread has it any more; NULL is fine */
/* The sink of this thread's lines from now on; returns the one before. Threads that it starts by ek_thread_start
 * (base/thread.h) have it too. NULL, at first: its lines belong to no engine and go to every sink that is open. */
ek_log_sink *ek_log_here(ek_log_sink *s);

/* From now on ek_log never waits for who reads standard error: lines go into a buffer of 256 KiB, and a thread writes
 * them. Lines that do not fit are lost, counted, and told by a line in their place once there is room. Until
 * ek_log_stop. Without a thread it stays as it was. Standard error's flags are not touched: other processes share them.
 */
void ek_log_start(void);
/* Writes what is buffered, for at most so many seconds. */
void ek_log_stop(double seconds);
uint64_t ek_log_lost(void); /* lines so far; any thread */

/* The sentence of a failure that ends the program, behind what is buffered: n bytes as they are. After ek_log_start it
 * waits at most a second for who reads standard error, else as long as that takes. */
void ek_log_last_words(const char *text, size_t n);

/* Topics that are logged only when asked for, with level INFO. None at start; set before threads start. */
enum { EK_LOG_CACHE = 1 };
void ek_log_topics_set(unsigned topics);
bool ek_log_wants(unsigned topic);

/* Progress of work that takes longer than half a second: one line rewritten in place on a terminal, at most 10 times
 * per second, and taken away when done == total; nothing when standard error is not a terminal. */
void ek_progress(const char *what, double done, double total);

/* Text from outside (files, names, arguments, requests) in a form that a terminal can be given: no byte of it moves the
 * cursor, turns text around or ends the line. Escaped are control characters (C0, DEL and the C1 of ISO 6429, which
 * terminals obey as one byte and as UTF-8), separators of lines, controls of direction, and bytes that are no UTF-8:
 * \x1b for a byte, \u009b for a character. Everything else stays, backslashes too. */

/* Bytes of the character that s, n > 0 bytes, begins with; *plain: a terminal may have it as it is. */
size_t ek_plain_char(const char *s, size_t n, bool *plain);

/* n bytes of text, escaped, into size > 0 bytes of out, with a NUL; cut between characters where there is no more room.
 * Returns the bytes written, without the NUL. */
size_t ek_plain(char *out, size_t size, const char *text, size_t n);

/* A name or value in a sentence: escaped, cut behind 80 characters, with an ellipsis then. Returns out. */
enum { EK_PLAIN_NAME = 80 * 6 + 4 };
const char *ek_plain_name(char out[EK_PLAIN_NAME], const char *text);

#endif
