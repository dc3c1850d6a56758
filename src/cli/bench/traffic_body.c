#include "cli/bench/traffic_body.h"

#include "base/hash/rng.h"

/* Every second request of a client is the repeated one; clients next to each other alternate. */
uint32_t ek_traffic_number(const ek_traffic *t, int client, int i)
{
    if ((client + i) % 2 == 0) return EK_TRAFFIC_REPEATED;
    return t->seed << 20 ^ (uint32_t)(client * t->each + i);
}

void ek_traffic_prompt(ek_buf *out, const ek_traffic *t, uint32_t number)
{
    static const char *const words[] = {"river", "seven",  "small", "letter", "under", "winter", "green", "table",
                                        "north", "answer", "stone", "music",  "early", "number", "house", "paper"};
    uint64_t key = ek_mix64(number);
    int n = t->prompt_words;
    if (number != EK_TRAFFIC_REPEATED) n = n / 2 + (int)(key % (uint64_t)(n + 1));
    for (int i = 0; i < n; i++) {
        ek_buf_str(out, words[ek_mix64(key + (uint64_t)i) % 16]);
        ek_buf_char(out, i + 1 < n ? ' ' : '.');
    }
}

double ek_traffic_delay(const ek_traffic *t, int client)
{
    return t->max_delay * (double)(ek_mix64(t->seed ^ (uint64_t)client << 32) >> 11) * 0x1p-53;
}
