#include "cli/frame/sampling.h"

#include <limits.h>

ek_sampling ek_cli_sampling(const ek_cli *cli, const ek_config *config)
{
    ek_sampling s = ek_sampling_greedy();
    int64_t top_k = cli->has.top_k ? cli->top_k : config->top_k;
    s.temperature = cli->has.temperature ? (float)cli->temperature : config->temperature;
    s.top_k = top_k < INT_MAX ? (int)top_k : INT_MAX;
    s.top_p = cli->has.top_p ? (float)cli->top_p : config->top_p;
    s.min_p = (float)cli->min_p;
    s.repetition_penalty = (float)cli->repetition_penalty;
    s.seed = (uint64_t)cli->seed;
    return s;
}
