/* The kernels of attention in integers on AMX with tiles in memory, see tiles_in_memory.h. */
#ifdef __x86_64__
#include "tiles_in_memory.h"

#define ek_attn_table_amx check_attn_table_amx
#include "ops/attn/x86/attn_int_amx.c"
#else
typedef int check_no_attn_amx;
#endif
