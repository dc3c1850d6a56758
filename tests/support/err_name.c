#include "err_name.h"

const char *err_name(ek_err code)
{
    static const char *const name[] = {
#define ERR(name, http) #name,
#include "base/err.def"
#undef ERR
    };
    return (unsigned)code < EK_ERR_COUNT ? name[code] : "?";
}
