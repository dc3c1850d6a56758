#include "cuda/chip.h"

#include "cuda/times.h"

/* CUDA C++ Programming Guide, "Compute Capabilities": shared memory of a multiprocessor; a block may have 1 KB less.
 * 12.x: clusters are left out, for no device was at hand to say what they cost there. */
static const struct {
    int capability, shared_kb;
    bool wgmma, bulk, clusters, overlap;
} known[] = {
    {80, 164, false, false, false, false}, {86, 100, false, false, false, false}, {87, 164, false, false, false, false},
    {88, 100, false, false, false, false}, {89, 100, false, false, false, false}, {90, 228, true, true, true, true},
    {100, 228, false, true, true, true},   {120, 100, false, true, false, true},
};

ek_cuda_chip ek_cuda_chip_like(int capability, int multiprocessors)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].capability <= capability) at = i;
    const size_t shared = (size_t)known[at].shared_kb << 10;
    return (ek_cuda_chip){.features = known[at].capability,
                          .multiprocessors = multiprocessors,
                          .shared = shared,
                          .block_shared = shared - 1024,
                          .wgmma = known[at].wgmma,
                          .bulk = known[at].bulk,
                          .clusters = known[at].clusters,
                          .overlap = known[at].overlap,
                          .us = known[at].wgmma ? &ek_cuda_us : &ek_cuda_us_mma,
                          .timed = known[at].wgmma};
}
