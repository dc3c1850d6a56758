#if defined(__x86_64__)
#define WEIGHT_SUM ek_weight_sum_avx512
#include "engine/weights_lanes.h"
#endif
