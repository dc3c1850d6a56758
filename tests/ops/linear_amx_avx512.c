/* The kernels of AMX for MLX's weights with tiles in memory, see tiles_in_memory.h. */
#ifdef __x86_64__
#include "tiles_in_memory.h"

#define ek_linear_q4_amx check_linear_q4_amx
#define ek_linear_q8_amx check_linear_q8_amx
#include "ops/linear/x86/linear_q_amx.c"
#else
typedef int check_no_linear_amx;
#endif
