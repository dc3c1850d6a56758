/* Steps that are recorded once and launched often. */
#include <stdlib.h>

#include "base/alloc.h"
#include "vulkan/state.h"

VkResult ek_vulkan_begin_graph(CUstream s)
{
    if (s->recording) return VK_ERROR_UNKNOWN;
    s->recording = ek_alloc(sizeof *s->recording);
    s->recording->users = 1;
    return VK_SUCCESS;
}

VkResult ek_vulkan_end_graph(CUstream s, CUgraph *out)
{
    CUgraph g = s->recording;
    s->recording = NULL;
    if (g->record.commands) ek_vulkan_end_waits(s->of, &g->record);
    const VkResult r = g->record.commands ? s->of->EndCommandBuffer(g->record.commands) : VK_SUCCESS;
    if (r == VK_SUCCESS) *out = g;
    else ek_vulkan_drop_graph(g, s->of);
    return r;
}

/* Command buffers enter the batch in order: those recorded before the graph, then the graph. */
VkResult ek_vulkan_launch_graph(CUstream s, CUgraph g)
{
    if (!g->record.commands) return VK_SUCCESS;
    if (s->open && s->open->n + 3 > EK_VULKAN_COMMANDS) {
        const VkResult r = ek_vulkan_flush(s);
        if (r != VK_SUCCESS) return r;
    }
    if (!s->open) s->open = ek_alloc(sizeof *s->open);
    ek_vulkan_batch *b = s->open;
    const VkResult r = ek_vulkan_end_record(s->of, b);
    if (r != VK_SUCCESS) return r;
    b->commands[b->n] = g->record.commands, b->own[b->n++] = false;
    b->graph[b->n_graphs++] = g;
    g->users++;
    return VK_SUCCESS;
}

/* Batches that have not run may use it, too. */
void ek_vulkan_drop_graph(CUgraph g, ek_vulkan *v)
{
    if (--g->users) return;
    if (g->record.commands) v->FreeCommandBuffers(v->device, v->pool, 1, &g->record.commands);
    ek_vulkan_give_chunks(v, &g->record);
    free(g);
}
