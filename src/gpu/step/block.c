#include "gpu/step/step.h"

ek_err ek_gpu_block_take(ek_gpu_block *b, size_t bytes, void **host, CUdeviceptr *device)
{
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > b->bytes - b->used)
        return ek_fail(EK_ETOOLARGE, "a step needs %zu bytes of lists, there are %zu", b->used + bytes, b->bytes);
    *host = b->host + b->used, *device = b->device + b->used;
    b->used += bytes;
    return EK_OK;
}
