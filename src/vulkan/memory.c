/* Memory: buffers with addresses, on the device and on the host, and host memory that is used again and again. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "vulkan/state.h"

enum { ALIGN = 256 }; /* alignment of a block's address, as CUDA's */

/* The first memory type with all flags of `want`, among the given types; -1: none. */
static int type_with(const ek_vulkan *v, uint32_t among, VkMemoryPropertyFlags want)
{
    for (uint32_t i = 0; i < v->memory.memoryTypeCount; i++)
        if (among >> i & 1 && (v->memory.memoryTypes[i].propertyFlags & want) == want) return (int)i;
    return -1;
}

static int type_for(const ek_vulkan *v, uint32_t among, ek_vulkan_place place)
{
    const VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const bool host = place != EK_VULKAN_DEVICE;
    const int both = place == EK_VULKAN_BOTH ? type_with(v, among, visible | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) : -1;
    if (both >= 0) return both;
    const int best = host ? type_with(v, among, visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
                          : type_with(v, among, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    return best >= 0 ? best : type_with(v, among, host ? visible : 0);
}

static VkResult allocate(ek_vulkan *v, ek_vulkan_block *b, const VkMemoryRequirements *need, ek_vulkan_place place)
{
    const int type = type_for(v, need->memoryTypeBits, place);
    if (type < 0 || need->size > v->max_block) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = need->size,
                                       .memoryTypeIndex = (uint32_t)type};
    return v->AllocateMemory(v->device, &info, NULL, &b->memory);
}

/* Cards without a resizable BAR have little device memory that the host can write. Once it is taken, the host's memory
 * is used. */
static VkResult bind(ek_vulkan *v, ek_vulkan_block *b, ek_vulkan_place place)
{
    VkMemoryRequirements need;
    v->GetBufferMemoryRequirements(v->device, b->buffer, &need);
    VkResult r = allocate(v, b, &need, place);
    if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY && place == EK_VULKAN_BOTH) r = allocate(v, b, &need, EK_VULKAN_HOST);
    if (r == VK_SUCCESS) r = v->BindBufferMemory(v->device, b->buffer, b->memory, 0);
    void *map = NULL;
    if (r == VK_SUCCESS && place != EK_VULKAN_DEVICE) r = v->MapMemory(v->device, b->memory, 0, VK_WHOLE_SIZE, 0, &map);
    b->map = map;
    return r;
}

size_t ek_vulkan_max_block(const ek_vulkan *v)
{
    return v->max_block > 2 * ALIGN ? (size_t)v->max_block - 2 * ALIGN : 0;
}

VkResult ek_vulkan_take(ek_vulkan *v, ek_vulkan_block *out, size_t bytes, ek_vulkan_place place)
{
    ek_vulkan_block b = {.bytes = bytes};
    if (bytes > ek_vulkan_max_block(v)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = bytes + 2 * ALIGN, /* kernels may read a word behind the last element */
                                     .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                              VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
                                              VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    VkResult r = v->CreateBuffer(v->device, &info, NULL, &b.buffer);
    if (r == VK_SUCCESS) r = bind(v, &b, place);
    if (r != VK_SUCCESS) {
        ek_vulkan_give(v, &b);
        return r;
    }
    const VkBufferDeviceAddressInfo at = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = b.buffer};
    b.at = v->GetBufferDeviceAddress(v->device, &at);
    b.skip = (ALIGN - b.at % ALIGN) % ALIGN;
    b.at += b.skip;
    if (b.map) b.map += b.skip;
    *out = b;
    return VK_SUCCESS;
}

void ek_vulkan_give(ek_vulkan *v, ek_vulkan_block *b)
{
    if (b->buffer) v->DestroyBuffer(v->device, b->buffer, NULL);
    if (b->memory) v->FreeMemory(v->device, b->memory, NULL);
    *b = (ek_vulkan_block){0};
}

const ek_vulkan_block *ek_vulkan_block_at(const ek_vulkan *v, uint64_t at, size_t bytes)
{
    int low = 0, end = v->n_blocks;
    while (low < end) {
        const int mid = (low + end) / 2;
        if (v->block[mid].at <= at) low = mid + 1;
        else end = mid;
    }
    if (low == 0) return NULL;
    const ek_vulkan_block *b = &v->block[low - 1];
    return at - b->at <= b->bytes && bytes <= b->bytes - (at - b->at) ? b : NULL;
}

const ek_vulkan_block *ek_vulkan_host_at(const ek_vulkan *v, const void *p, size_t bytes)
{
    const uintptr_t at = (uintptr_t)p;
    for (int i = 0; i < v->n_host; i++) {
        const uintptr_t from = (uintptr_t)v->host[i]->map;
        if (at >= from && at - from <= v->host[i]->bytes && bytes <= v->host[i]->bytes - (at - from)) return v->host[i];
    }
    return NULL;
}

/* Room in the largest heap of device memory: as the driver reports it, or if it does not, the size less what was
 * taken. */
void ek_vulkan_room(const ek_vulkan *v, size_t *free, size_t *total)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                                .pNext = v->budget ? &budget : NULL};
    uint32_t at = 0;
    uint64_t taken = 0;
    v->loader->GetPhysicalDeviceMemoryProperties2(v->physical, &memory);
    const VkPhysicalDeviceMemoryProperties *m = &memory.memoryProperties;
    for (uint32_t i = 1; i < m->memoryHeapCount; i++) {
        const bool own = m->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT,
                   best = m->memoryHeaps[at].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
        if (own && (!best || m->memoryHeaps[i].size > m->memoryHeaps[at].size)) at = i;
    }
    for (int i = 0; i < v->n_blocks; i++) taken += v->block[i].bytes;
    *total = m->memoryHeaps[at].size;
    if (v->budget) taken = budget.heapUsage[at];
    const uint64_t may = v->budget && budget.heapBudget[at] < *total ? budget.heapBudget[at] : *total;
    *free = may > taken ? may - taken : 0;
}

static VkResult make_set(ek_vulkan *v, ek_vulkan_chunk *c)
{
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC, 1};
    const VkDescriptorPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = 1, .poolSizeCount = 1, .pPoolSizes = &size};
    VkResult r = v->CreateDescriptorPool(v->device, &pool, NULL, &c->pool);
    if (r != VK_SUCCESS) return r;
    const VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                              .descriptorPool = c->pool,
                                              .descriptorSetCount = 1,
                                              .pSetLayouts = &v->set_layout};
    r = v->AllocateDescriptorSets(v->device, &info, &c->set);
    if (r != VK_SUCCESS) return r;
    const VkDescriptorBufferInfo buffer = {c->block.buffer, 0, EK_VULKAN_ARGS};
    const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = c->set,
                                        .descriptorCount = 1,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC,
                                        .pBufferInfo = &buffer};
    v->UpdateDescriptorSets(v->device, 1, &write, 0, NULL);
    return VK_SUCCESS;
}

static void free_chunk(ek_vulkan *v, ek_vulkan_chunk *c)
{
    if (c->pool) v->DestroyDescriptorPool(v->device, c->pool, NULL);
    ek_vulkan_give(v, &c->block);
    free(c);
}

VkResult ek_vulkan_take_chunk(ek_vulkan *v, ek_vulkan_chunk **list, bool stage)
{
    ek_vulkan_chunk **unused = stage ? &v->stages : &v->chunks, *c = *unused;
    if (c) {
        *unused = c->next;
    } else {
        c = ek_alloc(sizeof *c);
        VkResult r = stage ? ek_vulkan_take(v, &c->block, EK_VULKAN_STAGE, EK_VULKAN_HOST)
                           : ek_vulkan_take(v, &c->block, EK_VULKAN_CHUNK, EK_VULKAN_BOTH);
        if (r == VK_SUCCESS && !stage) r = make_set(v, c);
        if (r != VK_SUCCESS) {
            free_chunk(v, c);
            return r;
        }
    }
    c->used = 0, c->next = *list;
    *list = c;
    return VK_SUCCESS;
}

static void give_list(ek_vulkan_chunk **unused, ek_vulkan_chunk **list)
{
    while (*list) {
        ek_vulkan_chunk *c = *list;
        *list = c->next, c->next = *unused;
        *unused = c;
    }
}

void ek_vulkan_give_chunks(ek_vulkan *v, ek_vulkan_record *r)
{
    give_list(&v->chunks, &r->chunks);
    give_list(&v->stages, &r->stages);
}

void ek_vulkan_free_chunks(ek_vulkan *v)
{
    ek_vulkan_chunk **list[] = {&v->chunks, &v->stages};
    for (int i = 0; i < 2; i++)
        while (*list[i]) {
            ek_vulkan_chunk *c = *list[i];
            *list[i] = c->next;
            free_chunk(v, c);
        }
}
