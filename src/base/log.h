/* Log on standard error, one line per call; and progress. */
#ifndef EK_BASE_LOG_H
#define EK_BASE_LOG_H

#include <stdbool.h>

typedef enum { EK_LOG_ERROR, EK_LOG_WARN, EK_LOG_INFO, EK_LOG_DEBUG } ek_log_level;

void ek_log_set(ek_log_level max); /* lines above this level are dropped; INFO at start */
__attribute__((format(printf, 2, 3))) void ek_log(ek_log_level level, const char *fmt, ...);

/* Topics that are logged only when asked for, with level INFO. None at start; set before threads start. */
enum { EK_LOG_CACHE = 1 };
void ek_log_topics_set(unsigned topics);
bool ek_log_wants(unsigned topic);

/* Progress of long work: one line rewritten in place on a terminal, at most 10 times per
 * second; nothing when standard error is not a terminal. done == total ends the line. */
void ek_progress(const char *what, double done, double total);

#endif
