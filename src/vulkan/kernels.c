/* Kernels by CUDA's names: the shader, the arguments and the memory of each (kernels.def), and pipelines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "cuda/model_args.h"
#include "vulkan/spirv.h"
#include "vulkan/state.h"
#include "vulkan/vulkan.h"

/* --- what a kernel reads and writes */

static ek_vulkan_span span(uint64_t at, int64_t bytes)
{
    return (ek_vulkan_span){at, at ? at + (uint64_t)bytes : 0};
}

/* Weights are never written, so they do not count. */
static ek_vulkan_use use_product(const void *args, const uint32_t grid[3])
{
    const ek_cuda_linear_args *a = args;
    (void)grid;
    return (ek_vulkan_use){.write = {span(a->y, 4 * ((a->rows - 1) * a->ldy + a->n))},
                           .read = {span(a->x.q, a->rows * a->x.ldq), span(a->f, 4 * a->rows * a->ldf)}};
}

static ek_vulkan_use use_quantize(const void *args, const uint32_t grid[3])
{
    const ek_cuda_quantize_args *a = args;
    const int64_t rows = grid[1];
    return (ek_vulkan_use){.write = {span(a->to.q, rows * a->to.ldq)}, .read = {span(a->x, 4 * rows * a->ldx)}};
}

static ek_vulkan_use use_heads(const void *args, const uint32_t grid[3])
{
    const ek_cuda_heads_args *a = args;
    return (ek_vulkan_use){.write = {span(a->q, 4 * a->ldq * grid[1])}};
}

/* Pages are disjoint from the memory of all other kernels. */
static ek_vulkan_use use_store(const void *args, const uint32_t grid[3])
{
    const ek_cuda_store_args *a = args;
    return (ek_vulkan_use){.read = {span(a->k, 4 * a->ldk * grid[1]), span(a->v, 4 * a->ldv * grid[1])}};
}

static ek_vulkan_span both(ek_vulkan_span a, ek_vulkan_span b)
{
    if (a.first == a.end || b.first == b.end) return a.first == a.end ? b : a;
    return (ek_vulkan_span){a.first < b.first ? a.first : b.first, a.end > b.end ? a.end : b.end};
}

/* Rows are at most those of all jobs. */
static ek_vulkan_use use_products(const void *args, const uint32_t grid[3])
{
    const ek_cuda_products_args *a = args;
    const int64_t rows = (int64_t)grid[1] * a->a.rows, y = 4 * rows * a->a.ldy;
    const ek_vulkan_span jobs = span(a->jobs, (int64_t)sizeof(ek_cuda_job) * rows);
    return (ek_vulkan_use){.write = {span(a->a.y, y), span(a->y2, y)},
                           .read = {span(a->a.x.q, rows * a->a.x.ldq), span(a->a.f, 4 * rows * a->a.ldf),
                                    both(both(jobs, span(a->n_jobs, 4)), span(a->index, 4 * rows))}};
}

static ek_vulkan_use use_gated(const void *args, const uint32_t grid[3])
{
    const ek_cuda_warp_args *a = args;
    const int64_t rows = grid[1];
    const ek_vulkan_span jobs = both(span(a->jobs, (int64_t)sizeof(ek_cuda_job) * rows), span(a->n_jobs, 4));
    return (ek_vulkan_use){.write = {span(a->to.q, rows * a->to.ldq)},
                           .read = {span(a->a.x.q, rows * a->a.x.ldq), both(jobs, span(a->index, 4 * rows)),
                                    span(a->u, 4 * rows * a->ldu)}};
}

static ek_vulkan_use use_gate(const void *args, const uint32_t grid[3])
{
    const ek_cuda_gate_args *a = args;
    const int64_t rows = grid[1];
    return (ek_vulkan_use){.write = {span(a->y, 4 * rows * a->ldy), span(a->to.q, rows * a->to.ldq)},
                           .read = {span(a->g, 4 * rows * a->ldg), span(a->u, 4 * rows * a->ldu)}};
}

static ek_vulkan_use use_choose(const void *args, const uint32_t grid[3])
{
    const ek_cuda_choose_args *a = args;
    const int64_t pairs = a->rows * a->top_k;
    const ek_vulkan_span rows = both(span(a->pair_row, 4 * pairs), span(a->row_pair, 4 * pairs)),
                         jobs = both(span(a->jobs, (int64_t)sizeof(ek_cuda_job) * pairs), span(a->n_jobs, 4));
    (void)grid;
    return (ek_vulkan_use){.write = {both(rows, jobs), span(a->weight, 4 * pairs)},
                           .read = {span(a->route, 4 * a->rows * a->ld)}};
}

/* --- the table */

#define use_none NULL
static const struct {
    const char *name, *shader;
    size_t args;
    ek_vulkan_use (*use)(const void *args, const uint32_t grid[3]);
    ek_vulkan_size size;
} table[] = {
#define SIZED(name, shader, args, use, threads, tile) {#name, #shader, sizeof(args), use_##use, {threads, tile}},
#define KERNEL(name, shader, args)                    SIZED(name, shader, args, none, 0, 0)
#include "vulkan/kernels.def"
#undef KERNEL
#undef SIZED
    {0},
};
#define SIZED(name, shader, args, use, threads, tile) \
    _Static_assert(sizeof(args) <= EK_VULKAN_ARGS, "arguments are too large");
#define KERNEL(name, shader, args) SIZED(name, shader, args, none, 0, 0)
#include "vulkan/kernels.def"
#undef KERNEL
#undef SIZED
_Static_assert(sizeof table / sizeof *table <= EK_VULKAN_SHADERS * 2, "more kernels than a device has room for");

static int number_of(const char *shader)
{
    for (int i = 0; ek_vulkan_shaders[i].name; i++)
        if (!strcmp(ek_vulkan_shaders[i].name, shader)) return i;
    return -1;
}

static VkResult make(ek_vulkan *v, VkPipeline *out, const uint32_t *code, size_t words, ek_vulkan_size size)
{
    static const VkSpecializationMapEntry entry[] = {
        {0, 0, 4}, {1, 4, 4}}; /* constants' numbers in the shaders, and their offsets in a size */
    while (size.threads > v->max_threads) size.threads /= 2;
    const VkSpecializationInfo special = {size.threads ? 2 : 0, entry, sizeof size, &size};
    const VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = words * 4, .pCode = code};
    VkShaderModule module;
    VkResult r = v->CreateShaderModule(v->device, &info, NULL, &module);
    if (r != VK_SUCCESS) return r;
    const VkComputePipelineCreateInfo create = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                                .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                          .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                          .module = module,
                                                          .pName = "main",
                                                          .pSpecializationInfo = &special},
                                                .layout = v->layout};
    r = v->CreateComputePipelines(v->device, VK_NULL_HANDLE, 1, &create, NULL, out);
    v->DestroyShaderModule(v->device, module, NULL);
    return r;
}

VkResult ek_vulkan_pipeline(ek_vulkan *v, VkPipeline *out, const char *shader, bool soft, ek_vulkan_size size)
{
    const int i = number_of(shader);
    if (i < 0) return VK_ERROR_FEATURE_NOT_PRESENT;
    const ek_vulkan_shader *s = &ek_vulkan_shaders[i];
    size_t n = 0, n_plain = 0;
    uint32_t *const plain = ek_vulkan_matrices(soft ? s->soft : s->code, (soft ? s->soft_bytes : s->bytes) / 4,
                                               &n_plain);
    uint32_t *const code = plain ? ek_vulkan_strict(plain, n_plain, &v->modes, &n) : NULL;
    free(plain);
    if (!code) return VK_ERROR_INVALID_SHADER_NV;
    const VkResult r = make(v, out, code, n, size);
    free(code);
    return r;
}

/* The pipeline of a kernel with the same shader and size, if there is one. */
static VkPipeline pipeline_like(const ek_vulkan *v, size_t kernel)
{
    for (size_t i = 0; table[i].name; i++)
        if (!strcmp(table[i].shader, table[kernel].shader) && table[i].size.threads == table[kernel].size.threads &&
            table[i].size.tile == table[kernel].size.tile && v->kernel[i].pipeline)
            return v->kernel[i].pipeline;
    return VK_NULL_HANDLE;
}

VkResult ek_vulkan_find(ek_vulkan *v, CUfunction *out, const char *name)
{
    *out = NULL;
    for (size_t i = 0; table[i].name; i++) {
        if (strcmp(table[i].name, name)) continue;
        const int shader = number_of(table[i].shader);
        if (shader < 0) return VK_SUCCESS;
        const ek_vulkan_shader *const s = &ek_vulkan_shaders[shader];
        if (!v->soft && !v->matrices && ek_vulkan_has_matrix_code(s->code, s->bytes / 4)) return VK_SUCCESS;
        VkPipeline pipeline = pipeline_like(v, i);
        if (!pipeline) {
            const VkResult r = ek_vulkan_pipeline(v, &pipeline, table[i].shader, v->soft, table[i].size);
            if (r != VK_SUCCESS) return r;
            v->pipeline[i] = pipeline;
        }
        v->kernel[i] = (struct CUfunc_st){
            .name = table[i].name, .of = v, .pipeline = pipeline, .args = table[i].args, .use = table[i].use};
        *out = &v->kernel[i];
        return VK_SUCCESS;
    }
    return VK_SUCCESS;
}

uint32_t ek_vulkan_hash(void)
{
    uint32_t sum = 0;
    for (const ek_vulkan_shader *s = ek_vulkan_shaders; s->name; s++)
        sum = ek_crc32(ek_crc32(sum, s->code, s->bytes), s->soft, s->soft_bytes);
    return sum;
}
