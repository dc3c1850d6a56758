#include "record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "../support/fake_cuda.h"
#include "cuda/driver.h"
#include "cuda/operand_args.h"
#include "cuda/exchange_args.h"

record recorded;

/* --- memory: ranges of addresses that no count, size or float of an argument looks like */

enum { MAX_RANGES = 64 };

typedef struct range {
    CUdeviceptr at;
    size_t bytes;
    CUdeviceptr as; /* what an address in it counts as */
} range;

static range ranges[MAX_RANGES];
static int n_ranges, n_taken;

static void add(CUdeviceptr at, size_t bytes, CUdeviceptr as)
{
    assert_true(n_ranges < MAX_RANGES);
    ranges[n_ranges++] = (range){at, bytes, as};
}

static CUresult take(CUdeviceptr *p, size_t bytes)
{
    *p = (CUdeviceptr)0x7f00000000000000 + ((CUdeviceptr)++n_taken << 40);
    add(*p, bytes, *p);
    return EK_CU_OK;
}

static CUresult give_back(CUdeviceptr p)
{
    (void)p;
    return EK_CU_OK;
}

void record_alias(CUdeviceptr first, CUdeviceptr second, size_t bytes)
{
    add(second, bytes, first);
}

static CUdeviceptr as(CUdeviceptr p)
{
    for (int i = n_ranges; i-- > 0;) /* aliases first */
        if (p - ranges[i].at < ranges[i].bytes) return ranges[i].as + (p - ranges[i].at);
    return p;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return EK_CU_OK;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return EK_CU_OK;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return EK_CU_OK;
}

static CUresult fill(CUdeviceptr p, unsigned char value, size_t n, CUstream stream)
{
    (void)p, (void)value, (void)n, (void)stream;
    return EK_CU_OK;
}

/* --- arguments: by the kernel's name; the longest that it begins with, and among those the one it ends with */

#define TAIL(type, last)            \
    sizeof(type),                   \
    {                               \
        offsetof(type, last) + 4, 0 \
    }
static const struct {
    const char *begins, *ends;
    size_t bytes;
    size_t pad[2]; /* places of 4 bytes that no member has; 0: none */
} args[] = {
    {"ek_arrange", "", TAIL(ek_cuda_arrange_args, rows)},
    {"ek_argmax", "", sizeof(ek_cuda_reduce_args), {0}},
    {"ek_attn_",
     "",
     sizeof(ek_cuda_attn_args),
     {offsetof(ek_cuda_attn_args, slots) + 4, offsetof(ek_cuda_attn_args, single) + 4}},
    {"ek_choose", "", TAIL(ek_cuda_choose_args, router_blocks)},
    {"ek_draft_",
     "",
     sizeof(ek_cuda_draft_args),
     {offsetof(ek_cuda_draft_args, n_centroids) - 4, offsetof(ek_cuda_draft_args, max) + 4}},
    {"ek_embed", "", TAIL(ek_cuda_embed_args, f16_scales)},
    {"ek_experts_end", "", sizeof(ek_cuda_stage_args), {0}},
    {"ek_experts_first_",
     "",
     sizeof(ek_cuda_experts_first_args),
     {offsetof(ek_cuda_experts_first_args, gate_blocks) - 4, 0}},
    {"ek_exchange_rows", "", sizeof(ek_cuda_exchange_args), {0}},
    {"ek_exchange_words", "", sizeof(ek_cuda_exchange_args), {0}},
    {"ek_experts_inputs", "", TAIL(ek_cuda_inputs_args, n)},
    {"ek_experts_second_", "", TAIL(ek_cuda_experts_second_args, gate_blocks)},
    {"ek_gate", "", TAIL(ek_cuda_gate_args, n)},
    {"ek_gather", "", TAIL(ek_cuda_gather_args, n)},
    {"ek_group", "", sizeof(ek_cuda_group_args), {0}},
    {"ek_heads", "", TAIL(ek_cuda_heads_args, head_dim)},
    {"ek_kv_store", "", TAIL(ek_cuda_store_args, rows)},
    {"ek_layer_end_", "", sizeof(ek_cuda_layer_end_args), {0}},
    {"ek_pack_", "", 0, {0}},
    {"ek_per_layer", "", TAIL(ek_cuda_per_layer_args, size)},
    {"ek_product_", "", sizeof(ek_cuda_linear_args), {0}},
    {"ek_product_heads_", "", sizeof(ek_cuda_warp_heads_args), {0}},
    {"ek_product_heads_", "_wide", sizeof(ek_cuda_wide_heads_args), {0}},
    {"ek_product_join", "", TAIL(ek_cuda_join_args, n_parts)},
    {"ek_product_mid_gate_", "", sizeof(ek_cuda_warp_args), {0}},
    {"ek_product_mid_heads_", "", sizeof(ek_cuda_warp_heads_args), {0}},
    {"ek_product_warp_heads_", "", sizeof(ek_cuda_warp_heads_args), {0}},
    {"ek_products_", "", sizeof(ek_cuda_products_args), {0}},
    {"ek_products_mid_", "", sizeof(ek_cuda_warp_args), {0}},
    {"ek_products_warp_", "", sizeof(ek_cuda_warp_args), {0}},
    {"ek_quantize", "", sizeof(ek_cuda_quantize_args), {0}},
    {"ek_quantize_operands", "", TAIL(ek_cuda_quantize_operands_args, k)},
    {"ek_rope_tables", "", TAIL(ek_cuda_rope_tables_args, rotated)},
    {"ek_route", "", sizeof(ek_cuda_route_args), {0}},
    {"ek_sample_", "", TAIL(ek_cuda_sample_args, n_rows)},
    {"ek_soft_cap_check", "", sizeof(ek_cuda_cap_args), {0}},
    {"ek_stage", "", sizeof(ek_cuda_stage_args), {0}},
    {"ek_stage_rows", "", sizeof(ek_cuda_stage_rows_args), {0}},
};

static int args_of(const char *name)
{
    int found = -1;
    size_t longest = 0;
    for (int i = 0; i < (int)(sizeof args / sizeof *args); i++) {
        const size_t n = strlen(args[i].begins), e = strlen(args[i].ends), all = strlen(name);
        if (strncmp(name, args[i].begins, n) != 0 || all < n + e || strcmp(name + all - e, args[i].ends) != 0) continue;
        if (n + e > longest) longest = n + e, found = i;
    }
    if (found < 0) fail_msg("%s: no structure of arguments is known", name);
    return found;
}

static void note(const void *data, size_t bytes)
{
    const uint8_t *b = data;
    for (size_t i = 0; i < bytes; i++) recorded.hash = (recorded.hash ^ b[i]) * 0x100000001b3;
}

static void note_args(const char *name, const void *from)
{
    uint64_t word[160] = {0};
    const int which = args_of(name);
    const size_t bytes = args[which].bytes;
    assert_true(bytes <= sizeof word && bytes % 8 == 0);
    memcpy(word, from, bytes);
    for (int i = 0; i < 2; i++)
        if (args[which].pad[i]) memset((uint8_t *)word + args[which].pad[i], 0, 4);
    for (size_t i = 0; i < bytes / 8; i++) {
        word[i] = as(word[i]);
        if (recorded.out) fprintf(recorded.out, " %llx", (unsigned long long)word[i]);
    }
    note(word, bytes);
}

/* What the device does not have. */
static void look(const char *name, size_t shared, unsigned cluster)
{
    if (!recorded.kernels || recorded.lacks[0]) return;
    int i = 0;
    while (recorded.kernels[i] && strcmp(recorded.kernels[i], name) != 0) i++;
    if (!recorded.kernels[i]) snprintf(recorded.lacks, sizeof recorded.lacks, "%s", name);
    else if (shared > recorded.block_shared || (cluster && !recorded.clusters))
        snprintf(recorded.lacks, sizeof recorded.lacks, "%s: %zu bytes, cluster %u", name, shared, cluster);
}

static bool is(const char *name, const char *begins)
{
    return strncmp(name, begins, strlen(begins)) == 0;
}

/* What starts before the launch in front has ended reads jobs and pairs only if one between it and what wrote them has
 * waited for that, and let nothing start before. */
static void look_at_jobs(const char *name, const void *from, bool overlap)
{
    const ek_cuda_warp_args *w = from;
    const bool experts = (is(name, "ek_products_warp_") || is(name, "ek_products_mid_")) && w->jobs;
    const bool known = experts ? w->known : is(name, "ek_experts_end") && ((const ek_cuda_stage_args *)from)->known;
    if (!overlap) recorded.held = true;
    if (known && !recorded.held && !recorded.early[0]) snprintf(recorded.early, sizeof recorded.early, "%s", name);
    recorded.known += known;
    if (is(name, "ek_experts_first_") || is(name, "ek_choose") || is(name, "ek_group")) recorded.held = false;
    if ((experts && w->holds) || is(name, "ek_experts_second_")) recorded.held = true;
}

static int capability;

static CUresult launch(const CUlaunchConfig *c, CUfunction f, void **arg, void **extra)
{
    const char *name = (const char *)f;
    unsigned cluster = 0, overlap = 0;
    (void)extra;
    if (recorded.off) return EK_CU_OK;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id == EK_CU_LAUNCH_CLUSTER) cluster = c->attrs[i].value.clusterDim.x;
        if (c->attrs[i].id == EK_CU_LAUNCH_OVERLAP) overlap = 1;
    }
    const unsigned grid[] = {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->sharedMemBytes, cluster, overlap};
    look(name, c->sharedMemBytes, cluster);
    look_at_jobs(name, arg[0], overlap);
    if ((capability < 10 && c->gridDimX > EK_CUDA_GRID_Y) || c->gridDimY > EK_CUDA_GRID_Y ||
        c->gridDimZ > EK_CUDA_GRID_Y)
        snprintf(recorded.limit, sizeof recorded.limit, "%s: %u, %u, %u blocks", name, grid[0], grid[1], grid[2]);
    note(name, strlen(name) + 1), note(grid, sizeof grid);
    if (recorded.out)
        fprintf(recorded.out, "%s %u,%u,%u x %u shared %u cluster %u overlap %u:", name, grid[0], grid[1], grid[2],
                grid[3], grid[4], cluster, overlap);
    note_args(name, arg[0]);
    if (recorded.out) fprintf(recorded.out, "\n");
    recorded.launches++;
    return EK_CU_OK;
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
    note("graph", 6);
    if (recorded.out) fprintf(recorded.out, "graph\n");
    recorded.launches++;
    return EK_CU_OK;
}

void record_capability(int to)
{
    capability = to;
}

static CUresult attribute_of(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value = attribute == EK_CU_ATTR_MAJOR   ? capability / 10
             : attribute == EK_CU_ATTR_MINOR ? capability % 10
                                             : recorded.multiprocessors;
    return EK_CU_OK;
}

static CUresult room(size_t *free, size_t *total)
{
    *free = *total = (size_t)1 << 40;
    return EK_CU_OK;
}

static CUresult allow(CUfunction function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return EK_CU_OK;
}

void record_reset(ek_cuda_api *api, int multiprocessors)
{
    fake_cuda_reset(api);
    n_ranges = n_taken = 0, capability = 90;
    recorded = (record){.multiprocessors = multiprocessors};
    api->cuMemAlloc = take, api->cuMemFree = give_back, api->cuMemGetInfo = room;
    api->cuMemcpyHtoDAsync = copy_in, api->cuMemcpyDtoHAsync = copy_out, api->cuMemcpyDtoDAsync = copy;
    api->cuMemsetD8Async = fill, api->cuDeviceGetAttribute = attribute_of, api->cuFuncSetAttribute = allow;
    api->cuLaunchKernelEx = launch, api->cuGraphLaunch = launch_graph;
}
