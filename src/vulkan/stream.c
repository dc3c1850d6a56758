/* Queued work. Commands are recorded into a batch, which is submitted when the host waits for them, asks for an event,
 * or has queued much: a step of few rows is one submission. A device has one queue, and every command waits for all
 * earlier ones. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "vulkan/state.h"

/* --- recording */

enum { SHADERS = EK_VULKAN_SHADERS_RUN, COPIES = EK_VULKAN_COPIES_RUN, HOST = EK_VULKAN_HOST_READS };

/* Kernels reach memory by addresses. A barrier names storage alone, so that the driver need not empty its caches of
 * constants. */
static VkPipelineStageFlags2 stages_of(unsigned what)
{
    return (what & SHADERS ? VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT : 0) |
           (what & COPIES ? VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT : 0) |
           (what & HOST ? VK_PIPELINE_STAGE_2_HOST_BIT : 0);
}

static VkAccessFlags2 writes_of(unsigned what)
{
    return (what & SHADERS ? VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT : 0) |
           (what & COPIES ? VK_ACCESS_2_TRANSFER_WRITE_BIT : 0);
}

static VkAccessFlags2 reads_of(unsigned what)
{
    return (what & SHADERS ? VK_ACCESS_2_SHADER_STORAGE_READ_BIT : 0) |
           (what & COPIES ? VK_ACCESS_2_TRANSFER_READ_BIT : 0) | (what & HOST ? VK_ACCESS_2_HOST_READ_BIT : 0);
}

static void order(const ek_vulkan *v, VkCommandBuffer c, unsigned from, unsigned to)
{
    const VkMemoryBarrier2 b = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                .srcStageMask = stages_of(from),
                                .srcAccessMask = writes_of(from),
                                .dstStageMask = stages_of(to),
                                .dstAccessMask = reads_of(to) | writes_of(to)};
    const VkDependencyInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO, .memoryBarrierCount = 1, .pMemoryBarriers = &b};
    v->CmdPipelineBarrier2(c, &info);
}

static bool meet(ek_vulkan_span a, ek_vulkan_span b)
{
    return a.first < b.end && b.first < a.end;
}

/* Whether a launch need not wait for the launches since shaders last waited; adds its use to the record. No barrier
 * stands between kernels whose memory is known to be disjoint, because a barrier takes as long as a small kernel. */
static bool runs_beside(ek_vulkan_record *r, const ek_vulkan_use *use)
{
    if (r->n_uses < 0 || r->n_uses == EK_VULKAN_BESIDE) return false;
    for (int i = 0; i < r->n_uses; i++) {
        const ek_vulkan_use *other = &r->use[i];
        for (int k = 0; k < EK_VULKAN_WRITES; k++) {
            for (int j = 0; j < EK_VULKAN_WRITES; j++)
                if (meet(use->write[k], other->write[j])) return false;
            for (int j = 0; j < EK_VULKAN_READS; j++)
                if (meet(use->write[k], other->read[j]) || meet(other->write[k], use->read[j])) return false;
        }
    }
    r->use[r->n_uses++] = *use;
    return true;
}

/* A shader waits for commands that were queued since shaders last waited, and a copy likewise. Waiting for the host as
 * well would take half as long again (docs/log/2026-11-29-vulkan-speed.md), so the host's barrier comes only at the
 * end. */
static void wait_to_launch(const ek_vulkan *v, ek_vulkan_record *r, const ek_vulkan_use *use)
{
    const bool beside = use && r->shaders_wait == SHADERS && runs_beside(r, use);
    if (!beside) {
        if (r->shaders_wait) order(v, r->commands, r->shaders_wait, SHADERS);
        r->shaders_wait = 0, r->n_uses = use ? 1 : -1;
        if (use) r->use[0] = *use;
    }
    r->shaders_wait |= SHADERS, r->copies_wait |= SHADERS;
}

static void wait_to_copy(const ek_vulkan *v, ek_vulkan_record *r)
{
    if (r->copies_wait) order(v, r->commands, r->copies_wait, COPIES);
    r->copies_wait = COPIES, r->shaders_wait |= COPIES;
}

/* Everything after this record, and the host, waits for all of it. */
static void end_waits(const ek_vulkan *v, ek_vulkan_record *r)
{
    order(v, r->commands, SHADERS | COPIES, SHADERS | COPIES | HOST);
}

static VkResult open_record(ek_vulkan *v, ek_vulkan_record *r, bool again)
{
    if (r->commands) return VK_SUCCESS;
    const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = v->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = again ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                                                           : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkResult e = v->AllocateCommandBuffers(v->device, &info, &r->commands);
    if (e == VK_SUCCESS) e = v->BeginCommandBuffer(r->commands, &begin);
    r->shaders_wait = r->copies_wait = 0, r->n_uses = -1; /* the previous record ended with a barrier */
    return e;
}

/* The record that takes the next command. */
static VkResult record_of(CUstream s, ek_vulkan_record **out)
{
    if (!s->recording && !s->open) s->open = ek_alloc(sizeof *s->open);
    *out = s->recording ? &s->recording->record : &s->open->record;
    return open_record(s->of, *out, s->recording);
}

enum { ROOM = 256 }; /* bytes; uniform buffers of every device allow this alignment */

/* Takes room in a list of chunks, which grows by a chunk if it is full. */
static VkResult take_room(ek_vulkan *v, ek_vulkan_chunk **list, bool stage, size_t bytes, uint8_t **map,
                          VkBuffer *buffer, size_t *offset, uint64_t *at)
{
    const size_t room = stage ? EK_VULKAN_STAGE : EK_VULKAN_CHUNK, whole = (bytes + ROOM - 1) / ROOM * ROOM;
    EK_ASSERT(whole <= room);
    if (!*list || (*list)->used + whole > room) {
        const VkResult r = ek_vulkan_take_chunk(v, list, stage);
        if (r != VK_SUCCESS) return r;
    }
    ek_vulkan_chunk *c = *list;
    *map = c->block.map + c->used, *buffer = c->block.buffer, *offset = c->block.skip + c->used;
    if (at) *at = c->block.at + c->used;
    c->used += whole;
    return VK_SUCCESS;
}

/* --- submitting */

/* Closes the open command buffer. */
static VkResult end_record(ek_vulkan *v, ek_vulkan_batch *b)
{
    if (!b->record.commands) return VK_SUCCESS;
    EK_ASSERT(b->n < EK_VULKAN_COMMANDS);
    end_waits(v, &b->record);
    const VkResult r = v->EndCommandBuffer(b->record.commands);
    b->commands[b->n] = b->record.commands, b->own[b->n++] = true;
    b->record.commands = NULL;
    return r;
}

VkResult ek_vulkan_flush(CUstream s)
{
    ek_vulkan *v = s->of;
    ek_vulkan_batch *b = s->open;
    if (!b) return VK_SUCCESS;
    VkResult r = end_record(v, b);
    if (r != VK_SUCCESS) return r;
    b->value = v->submitted + 1;
    const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                  .signalSemaphoreValueCount = 1,
                                                  .pSignalSemaphoreValues = &b->value};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &values,
                               .commandBufferCount = (uint32_t)b->n,
                               .pCommandBuffers = b->commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &v->semaphore};
    r = v->QueueSubmit(v->queue, 1, &info, VK_NULL_HANDLE);
    if (r != VK_SUCCESS) return r;
    v->submitted = s->value = b->value;
    s->open = NULL;
    if (s->last) s->last->next = b;
    else s->first = b;
    s->last = b;
    return VK_SUCCESS;
}

static void free_batch(ek_vulkan *v, ek_vulkan_batch *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->own[i]) v->FreeCommandBuffers(v->device, v->pool, 1, &b->commands[i]);
    if (b->record.commands) v->FreeCommandBuffers(v->device, v->pool, 1, &b->record.commands);
    for (int i = 0; i < b->n_graphs; i++) ek_vulkan_drop_graph(b->graph[i], v);
    ek_vulkan_give_chunks(v, &b->record);
    free(b->late), free(b);
}

/* Ends the batches up to `value`, which have run. */
static void retire(CUstream s, uint64_t value)
{
    while (s->first && s->first->value <= value) {
        ek_vulkan_batch *b = s->first;
        for (int i = 0; i < b->n_late; i++) memcpy(b->late[i].to, b->late[i].from, b->late[i].bytes);
        s->first = b->next;
        if (!s->first) s->last = NULL;
        free_batch(s->of, b);
    }
}

VkResult ek_vulkan_is_done(CUstream s, uint64_t value, bool *done)
{
    uint64_t reached = 0;
    const VkResult r = s->of->GetSemaphoreCounterValue(s->of->device, s->of->semaphore, &reached);
    *done = r == VK_SUCCESS && reached >= value;
    if (*done) retire(s, reached);
    return r;
}

VkResult ek_vulkan_wait(CUstream s, uint64_t value)
{
    ek_vulkan *v = s->of;
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &v->semaphore,
                                      .pValues = &value};
    const VkResult r = v->WaitSemaphores(v->device, &info, UINT64_MAX);
    if (r == VK_SUCCESS) retire(s, value);
    return r;
}

VkResult ek_vulkan_wait_all(ek_vulkan *v)
{
    for (CUstream s = v->streams; s; s = s->next) {
        VkResult r = ek_vulkan_flush(s);
        if (r == VK_SUCCESS) r = ek_vulkan_wait(s, s->value);
        if (r != VK_SUCCESS) return r;
    }
    return VK_SUCCESS;
}

/* The device must have finished all work. */
void ek_vulkan_close_stream(CUstream s)
{
    ek_vulkan *v = s->of;
    CUstream *at = &v->streams;
    while (s->first) {
        ek_vulkan_batch *b = s->first;
        s->first = b->next;
        free_batch(v, b);
    }
    if (s->open) free_batch(v, s->open);
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s);
}

/* --- commands */

VkResult ek_vulkan_launch(CUstream s, CUfunction f, const uint32_t grid[3], const void *args)
{
    ek_vulkan *v = s->of;
    ek_vulkan_record *to;
    uint8_t *map;
    VkBuffer buffer;
    size_t offset;
    uint64_t at;
    for (int i = 0; i < 3; i++)
        if (grid[i] > v->max_grid[i]) return VK_ERROR_VALIDATION_FAILED_EXT;
    VkResult r = record_of(s, &to);
    if (r == VK_SUCCESS) r = take_room(v, &to->chunks, false, f->args, &map, &buffer, &offset, &at);
    if (r != VK_SUCCESS) return r;
    memcpy(map, args, f->args);
    const uint32_t from = (uint32_t)offset;
    const ek_vulkan_use use = f->use ? f->use(args, grid) : (ek_vulkan_use){0};
    wait_to_launch(v, to, f->use ? &use : NULL);
    v->CmdBindPipeline(to->commands, VK_PIPELINE_BIND_POINT_COMPUTE, f->pipeline);
    v->CmdBindDescriptorSets(to->commands, VK_PIPELINE_BIND_POINT_COMPUTE, v->layout, 0, 1, &to->chunks->set, 1, &from);
    v->CmdPushConstants(to->commands, v->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof at, &at);
    v->CmdDispatch(to->commands, grid[0], grid[1], grid[2]);
    /* Drivers reset a device whose submission takes seconds (on Linux AMD's after 2 to 10), which a prompt's step may
     * take on a small one. Staged copies are counted in the open batch alone, so a batch that has some goes on. */
    if (s->recording || s->open->staged) return VK_SUCCESS;
    s->open->groups += (uint64_t)grid[0] * grid[1] * grid[2];
    return s->open->groups < EK_VULKAN_GROUPS ? VK_SUCCESS : ek_vulkan_flush(s);
}

static void copy(const ek_vulkan *v, ek_vulkan_record *r, VkBuffer to, uint64_t to_at, VkBuffer from, uint64_t from_at,
                 size_t bytes)
{
    const VkBufferCopy region = {from_at, to_at, bytes};
    wait_to_copy(v, r);
    v->CmdCopyBuffer(r->commands, from, to, 1, &region);
}

/* Takes bytes of a stage, through which the device reaches ordinary host memory. Waits if too many are in use. */
static VkResult stage(CUstream s, size_t bytes, ek_vulkan_record **to, uint8_t **map, VkBuffer *buffer, size_t *offset)
{
    if (!s->recording && s->open && s->open->staged + bytes > EK_VULKAN_STAGED) {
        VkResult r = ek_vulkan_flush(s);
        if (r == VK_SUCCESS) r = ek_vulkan_wait(s, s->value);
        if (r != VK_SUCCESS) return r;
    }
    VkResult r = record_of(s, to);
    if (r == VK_SUCCESS) r = take_room(s->of, &(*to)->stages, true, bytes, map, buffer, offset, NULL);
    if (r == VK_SUCCESS && !s->recording) s->open->staged += bytes;
    return r;
}

static VkResult upload_staged(CUstream s, const ek_vulkan_block *b, uint64_t to, const uint8_t *from, size_t bytes)
{
    ek_vulkan_record *into;
    uint8_t *map;
    VkBuffer buffer;
    size_t offset;
    for (size_t n; bytes; to += n, from += n, bytes -= n) {
        n = bytes < EK_VULKAN_STAGE ? bytes : EK_VULKAN_STAGE;
        const VkResult r = stage(s, n, &into, &map, &buffer, &offset);
        if (r != VK_SUCCESS) return r;
        memcpy(map, from, n);
        copy(s->of, into, b->buffer, b->skip + (to - b->at), buffer, offset, n);
    }
    return VK_SUCCESS;
}

VkResult ek_vulkan_upload(CUstream s, uint64_t to, const void *from, size_t bytes)
{
    const ek_vulkan_block *b = ek_vulkan_block_at(s->of, to, bytes), *host = ek_vulkan_host_at(s->of, from, bytes);
    ek_vulkan_record *into;
    if (!b) return VK_ERROR_UNKNOWN;
    if (!bytes) return VK_SUCCESS;
    if (!host) return upload_staged(s, b, to, from, bytes);
    const VkResult r = record_of(s, &into);
    if (r != VK_SUCCESS) return r;
    const size_t at = (size_t)((const uint8_t *)from - host->map);
    copy(s->of, into, b->buffer, b->skip + (to - b->at), host->buffer, host->skip + at, bytes);
    return VK_SUCCESS;
}

static void add_late(ek_vulkan_batch *b, ek_vulkan_late late)
{
    if (b->n_late == b->max_late) {
        b->max_late = b->max_late ? 2 * b->max_late : 8;
        b->late = ek_realloc(b->late, sizeof *b->late * (size_t)b->max_late);
    }
    b->late[b->n_late++] = late;
}

static VkResult download_staged(CUstream s, uint8_t *to, const ek_vulkan_block *b, uint64_t from, size_t bytes)
{
    ek_vulkan_record *into;
    uint8_t *map;
    VkBuffer buffer;
    size_t offset;
    if (s->recording) return VK_ERROR_FEATURE_NOT_PRESENT; /* a step that runs again must reach the memory itself */
    for (size_t n; bytes; to += n, from += n, bytes -= n) {
        n = bytes < EK_VULKAN_STAGE ? bytes : EK_VULKAN_STAGE;
        const VkResult r = stage(s, n, &into, &map, &buffer, &offset);
        if (r != VK_SUCCESS) return r;
        copy(s->of, into, buffer, offset, b->buffer, b->skip + (from - b->at), n);
        add_late(s->open, (ek_vulkan_late){to, map, n});
    }
    return VK_SUCCESS;
}

VkResult ek_vulkan_download(CUstream s, void *to, uint64_t from, size_t bytes)
{
    const ek_vulkan_block *b = ek_vulkan_block_at(s->of, from, bytes), *host = ek_vulkan_host_at(s->of, to, bytes);
    ek_vulkan_record *into;
    if (!b) return VK_ERROR_UNKNOWN;
    if (!bytes) return VK_SUCCESS;
    if (!host) return download_staged(s, to, b, from, bytes);
    const VkResult r = record_of(s, &into);
    if (r != VK_SUCCESS) return r;
    const size_t at = (size_t)((uint8_t *)to - host->map);
    copy(s->of, into, host->buffer, host->skip + at, b->buffer, b->skip + (from - b->at), bytes);
    return VK_SUCCESS;
}

VkResult ek_vulkan_copy(CUstream s, uint64_t to, uint64_t from, size_t bytes)
{
    const ek_vulkan_block *a = ek_vulkan_block_at(s->of, to, bytes), *b = ek_vulkan_block_at(s->of, from, bytes);
    ek_vulkan_record *into;
    if (!a || !b) return VK_ERROR_UNKNOWN;
    if (!bytes) return VK_SUCCESS;
    const VkResult r = record_of(s, &into);
    if (r != VK_SUCCESS) return r;
    copy(s->of, into, a->buffer, a->skip + (to - a->at), b->buffer, b->skip + (from - b->at), bytes);
    return VK_SUCCESS;
}

/* Vulkan fills whole words; the bytes at both ends are copied. */
VkResult ek_vulkan_fill(CUstream s, uint64_t to, uint8_t byte, size_t bytes)
{
    const ek_vulkan_block *b = ek_vulkan_block_at(s->of, to, bytes);
    uint8_t same[4];
    ek_vulkan_record *into;
    if (!b) return VK_ERROR_UNKNOWN;
    memset(same, byte, sizeof same);
    const uint64_t at = b->skip + (to - b->at), words = (at + 3) / 4 * 4, end = at + bytes;
    const size_t head = words - at < bytes ? words - at : bytes;
    if (head) {
        const VkResult r = upload_staged(s, b, to, same, head);
        if (r != VK_SUCCESS) return r;
    }
    if (head == bytes) return VK_SUCCESS;
    const size_t middle = (end - words) / 4 * 4, tail = end - words - middle;
    const VkResult r = record_of(s, &into);
    if (r != VK_SUCCESS) return r;
    if (middle) {
        wait_to_copy(s->of, into);
        s->of->CmdFillBuffer(into->commands, b->buffer, words, middle, byte * 0x01010101u);
    }
    return tail ? upload_staged(s, b, to + head + middle, same, tail) : VK_SUCCESS;
}

/* --- steps that are recorded once and launched often */

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
    if (g->record.commands) end_waits(s->of, &g->record);
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
    const VkResult r = end_record(s->of, b);
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
