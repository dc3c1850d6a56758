/* Errors: a code, declared in err.def, and one sentence per thread that names the fault. */
#ifndef EK_BASE_ERR_H
#define EK_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

typedef enum ek_err {
#define ERR(name, http) EK_##name,
#include "base/err.def"
#undef ERR
    EK_ERR_COUNT
} ek_err;

/* Records a sentence for this thread and returns code, so that a failing function ends in `return ek_fail(EK_EPARSE,
 * "…", …);`. The sentence names the fault, the value and the limit, without newline or full stop. Control characters
 * are escaped (base/log.h), so a sentence is one line whatever names it quotes. */
__attribute__((format(printf, 2, 3))) ek_err ek_fail(ek_err code, const char *fmt, ...);

/* Puts "context: " before the recorded sentence; returns code. For callers that know
 * the file or the tensor when the callee does not. */
__attribute__((format(printf, 2, 3))) ek_err ek_fail_in(ek_err code, const char *fmt, ...);

/* The sentence of the last failure of this thread; never NULL. Valid until the next one. */
const char *ek_err_text(void);
int ek_err_http(ek_err code); /* the HTTP status of a code: 400 for EK_EINVAL */

/* Returns from the calling function when expr, an ek_err, is not EK_OK. */
#define EK_TRY(expr)                          \
    do {                                      \
        ek_err ek_try_ = (expr);              \
        if (ek_try_ != EK_OK) return ek_try_; \
    } while (0)

/* Checks an internal invariant, in release builds too: the program aborts rather than give a wrong answer. */
#define EK_ASSERT(cond) ((cond) ? (void)0 : ek_assert_failed(#cond, __FILE__, __LINE__))
__attribute__((noreturn)) void ek_assert_failed(const char *cond, const char *file, int line);

#endif
