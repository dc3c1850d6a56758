/* The log on standard error, one line per call; and progress. */
#ifndef EK_BASE_LOG_H
#define EK_BASE_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NOTICE: messages that appear once per machine; a command that opens many models leaves them out. */
typedef enum { EK_LOG_ERROR, EK_LOG_WARN, EK_LOG_NOTICE, EK_LOG_INFO, EK_LOG_DEBUG } ek_log_level;

void ek_log_set(ek_log_level max); /* drops less important lines; INFO at first */
__attribute__((format(printf, 2, 3))) void ek_log(ek_log_level level, const char *fmt, ...);

/* Receives the lines of a library's engine instead of standard error, without line ends, one at a time. fn must not
 * log. NULL: lines are dropped. After the first sink is opened, no line and no progress goes to standard error, because
 * a library does not own its process's streams. */
typedef void ek_log_fn(void *arg, int level, const char *line);
typedef struct ek_log_sink ek_log_sink;
ek_log_sink *ek_log_sink_open(ek_log_fn *fn, void *arg);
void ek_log_sink_close(ek_log_sink *s); /* when no thread uses it any more; NULL is allowed */
/* Sets the sink of this thread's lines, and returns the previous one. NULL (the initial value): the lines belong to no
 * engine and go to every open sink. */
ek_log_sink *ek_log_here(ek_log_sink *s);
/* Like pthread_create, without attributes; the new thread inherits the caller's sink. */
int ek_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* From now on, until ek_log_stop, ek_log never waits for the reader of standard error: lines go into a buffer of 256
 * KiB, and a thread writes them. Lines that do not fit are lost and counted; a line in their place says how many. If no
 * thread can be started, nothing changes. The flags of standard error stay, because other processes share them. */
void ek_log_start(void);
/* Writes the buffered lines, for at most `seconds`. */
void ek_log_stop(double seconds);
uint64_t ek_log_lost(void); /* lost lines so far; any thread */

/* Writes the sentence of a fatal error after the buffered lines: n unescaped bytes. After ek_log_start it waits for the
 * reader of standard error at most a second, otherwise without limit. */
void ek_log_last_words(const char *text, size_t n);

/* Topics that are logged only when asked for, with level INFO. None at start; set before threads start. */
enum { EK_LOG_CACHE = 1 };
void ek_log_topics_set(unsigned topics);
bool ek_log_wants(unsigned topic);

/* Progress of work that takes longer than half a second: one line on a terminal, rewritten at most 10 times per second
 * and removed when done == total. Nothing if standard error is not a terminal. */
void ek_progress(const char *what, double done, double total);

/* Makes text from outside (files, names, arguments, requests) safe for a terminal: no byte moves the cursor, changes
 * the direction of text or ends the line. Escaped are control characters (C0, DEL and the C1 of ISO 6429, which
 * terminals obey as one byte and as UTF-8), line separators, controls of direction, and bytes that are no UTF-8: \x1b
 * for a byte, u009b for a character. Everything else stays, backslashes too. */

/* Length in bytes of the first character of s, n > 0 bytes; *plain: it needs no escape. */
size_t ek_plain_char(const char *s, size_t n, bool *plain);

/* Escapes n bytes of text into out, size > 0 bytes, with NUL; truncates between characters if it does not fit. Returns
 * the bytes written, without NUL. */
size_t ek_plain(char *out, size_t size, const char *text, size_t n);

/* Escapes a name or value for a sentence; truncates it after 80 characters, with an ellipsis. Returns out. */
enum { EK_PLAIN_NAME = 80 * 6 + 4 };
const char *ek_plain_name(char out[EK_PLAIN_NAME], const char *text);

#endif
