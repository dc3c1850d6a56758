/* State shared by the files of this folder: Vulkan's functions, a device, its memory and its queued commands. */
#ifndef EK_VULKAN_STATE_H
#define EK_VULKAN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "base/err.h"
#include "cuda/api.h"
#include "vulkan/spirv.h"

/* --- functions */

/* VK(name): functions of the instance, then of a device. */
#define EK_VULKAN_INSTANCE_FUNCTIONS(VK)       \
    VK(EnumeratePhysicalDevices)               \
    VK(GetPhysicalDeviceProperties2)           \
    VK(GetPhysicalDeviceFeatures2)             \
    VK(GetPhysicalDeviceMemoryProperties2)     \
    VK(GetPhysicalDeviceQueueFamilyProperties) \
    VK(EnumerateDeviceExtensionProperties)     \
    VK(CreateDevice)                           \
    VK(GetDeviceProcAddr)

#define EK_VULKAN_DEVICE_FUNCTIONS(VK) \
    VK(DestroyDevice)                  \
    VK(DeviceWaitIdle)                 \
    VK(GetDeviceQueue)                 \
    VK(CreateBuffer)                   \
    VK(DestroyBuffer)                  \
    VK(GetBufferMemoryRequirements)    \
    VK(GetBufferDeviceAddress)         \
    VK(AllocateMemory)                 \
    VK(FreeMemory)                     \
    VK(BindBufferMemory)               \
    VK(MapMemory)                      \
    VK(CreateShaderModule)             \
    VK(DestroyShaderModule)            \
    VK(CreatePipelineLayout)           \
    VK(DestroyPipelineLayout)          \
    VK(CreateDescriptorSetLayout)      \
    VK(DestroyDescriptorSetLayout)     \
    VK(CreateDescriptorPool)           \
    VK(DestroyDescriptorPool)          \
    VK(AllocateDescriptorSets)         \
    VK(UpdateDescriptorSets)           \
    VK(CreateComputePipelines)         \
    VK(DestroyPipeline)                \
    VK(CreateCommandPool)              \
    VK(DestroyCommandPool)             \
    VK(AllocateCommandBuffers)         \
    VK(FreeCommandBuffers)             \
    VK(BeginCommandBuffer)             \
    VK(EndCommandBuffer)               \
    VK(CmdBindPipeline)                \
    VK(CmdBindDescriptorSets)          \
    VK(CmdPushConstants)               \
    VK(CmdDispatch)                    \
    VK(CmdCopyBuffer)                  \
    VK(CmdFillBuffer)                  \
    VK(CmdPipelineBarrier2)            \
    VK(CreateSemaphore)                \
    VK(DestroySemaphore)               \
    VK(GetSemaphoreCounterValue)       \
    VK(WaitSemaphores)                 \
    VK(QueueSubmit)

typedef struct ek_vulkan_loader {
    VkInstance instance;
    uint32_t version; /* the loader's */
    VkPhysicalDevice device[16];
    int n;
    PFN_vkVoidFunction matrix_forms; /* of cooperative matrices (device.c); NULL: unknown to the loader */
#define VK(name) PFN_vk##name name;
    EK_VULKAN_INSTANCE_FUNCTIONS(VK)
#undef VK
} ek_vulkan_loader;

/* --- a device */

enum { EK_VULKAN_CHUNK = 1 << 16, EK_VULKAN_STAGE = 8 << 20, EK_VULKAN_STAGED = 64 << 20, EK_VULKAN_SHADERS = 128 };
enum { EK_VULKAN_MATRIX_SHARED = 48 << 10 }; /* bytes of shared memory, of shaders of cooperative matrices */
enum { EK_VULKAN_ARGS = 512 };               /* bytes of a kernel's arguments at most */
enum { EK_VULKAN_GROUPS = 1 << 15 };         /* workgroups after which a batch is submitted */

/* Memory of the device, or of the host if `map` is set. */
typedef struct ek_vulkan_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t at; /* its address on the device */
    size_t skip; /* bytes of the buffer before it */
    size_t bytes;
    uint8_t *map;
} ek_vulkan_block;

/* Reused host memory for arguments and copies. */
typedef struct ek_vulkan_chunk {
    ek_vulkan_block block;
    VkDescriptorPool pool; /* of arguments: */
    VkDescriptorSet set;   /* a uniform buffer anywhere in it */
    size_t used;
    struct ek_vulkan_chunk *next;
} ek_vulkan_chunk;

/* A copy to host memory outside the device's reach; the host makes it when the device has finished. */
typedef struct ek_vulkan_late {
    void *to;
    const void *from;
    size_t bytes;
} ek_vulkan_late;

/* Memory that changes within a step and that a kernel reads or writes: addresses [first, end). */
typedef struct ek_vulkan_span {
    uint64_t first, end;
} ek_vulkan_span;
enum { EK_VULKAN_WRITES = 2, EK_VULKAN_READS = 3, EK_VULKAN_BESIDE = 4 };
typedef struct ek_vulkan_use {
    ek_vulkan_span write[EK_VULKAN_WRITES], read[EK_VULKAN_READS];
} ek_vulkan_use;

/* Bits: shaders and copies that run, and reads of the host. */
enum { EK_VULKAN_SHADERS_RUN = 1, EK_VULKAN_COPIES_RUN = 2, EK_VULKAN_HOST_READS = 4 };

/* Commands being recorded, and the memory that they read. */
typedef struct ek_vulkan_record {
    VkCommandBuffer commands; /* NULL: none yet */
    ek_vulkan_chunk *chunks, *stages;
    unsigned shaders_wait, copies_wait;  /* bits of the commands that ran since the last wait */
    ek_vulkan_use use[EK_VULKAN_BESIDE]; /* uses of the launches since shaders last waited; */
    int n_uses;                          /* -1: not known */
} ek_vulkan_record;

/* A recorded step, run as often as it is launched. */
struct CUgraph_st {
    ek_vulkan_record record;
    int users;
};

/* One submission: its own command buffers, and graphs' command buffers between them. */
enum { EK_VULKAN_COMMANDS = 16 };
typedef struct ek_vulkan_batch {
    ek_vulkan_record record; /* the last one, which is open */
    VkCommandBuffer commands[EK_VULKAN_COMMANDS];
    bool own[EK_VULKAN_COMMANDS];
    int n;
    CUgraph graph[EK_VULKAN_COMMANDS];
    int n_graphs;
    ek_vulkan_late *late;
    int n_late, max_late;
    size_t staged;
    uint64_t groups; /* workgroups launched by commands of its own */
    uint64_t value;  /* the device's semaphore reaches it when the batch has run */
    struct ek_vulkan_batch *next;
} ek_vulkan_batch;

struct CUstream_st {
    struct ek_vulkan *of;
    ek_vulkan_batch *open, *first, *last; /* first to last: submitted, oldest first */
    CUgraph recording;                    /* NULL: commands run instead of being recorded */
    uint64_t value;                       /* of the last submitted batch */
    struct CUstream_st *next;
};

struct CUevent_st {
    struct CUstream_st *of; /* NULL: never recorded */
    uint64_t value;
};

/* A kernel; the first look-up makes its pipeline. */
struct CUfunc_st {
    const char *name;
    struct ek_vulkan *of;
    VkPipeline pipeline;
    size_t args;                                                    /* bytes */
    ek_vulkan_use (*use)(const void *args, const uint32_t grid[3]); /* NULL: it runs beside none */
};

typedef struct ek_vulkan {
    const ek_vulkan_loader *loader;
    int ordinal, users;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkSemaphore semaphore; /* counts batches */
    uint64_t submitted;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t max_block; /* bytes of one allocation */
    uint32_t max_grid[3];
    bool budget;
    ek_vulkan_modes modes;  /* float modes that shaders may request */
    bool matrices;          /* cooperative ones (spirv.h) */
    bool soft;              /* fma by integers, because the device's own is wrong */
    ek_vulkan_block *block; /* device memory, by address */
    int n_blocks, max_blocks;
    ek_vulkan_block **host; /* host memory that callers hold */
    int n_host, max_host;
    ek_vulkan_chunk *chunks, *stages; /* unused */
    struct CUstream_st *streams;
    struct CUfunc_st kernel[EK_VULKAN_SHADERS * 2];
    VkPipeline pipeline[EK_VULKAN_SHADERS * 2]; /* of the first kernel with its shader and size */
    uint32_t max_threads;                       /* of a workgroup */
#define VK(name) PFN_vk##name name;
    EK_VULKAN_DEVICE_FUNCTIONS(VK)
#undef VK
} ek_vulkan;

/* --- loader.c */

ek_err ek_vulkan_open_loader(const ek_vulkan_loader **out);
/* The name of device number `ordinal`, for messages. */
void ek_vulkan_name(const ek_vulkan_loader *l, int ordinal, char *out, size_t room);

/* --- device.c */

/* EUNSUPPORTED: one sentence names everything that device number `ordinal` lacks. */
ek_err ek_vulkan_check_device(int ordinal);
VkResult ek_vulkan_open(ek_vulkan **out, const ek_vulkan_loader *l, int ordinal);
void ek_vulkan_close(ek_vulkan *v);
/* Whether d multiplies signed bytes, 16 x 16 x 32, with 32-bit sums, in subgroups of 32, and has the memory model for
 * it.
 */
bool ek_vulkan_has_matrices(const ek_vulkan_loader *l, VkPhysicalDevice d);

/* --- evidence.c runs a device's float operations and compares them with the definition (docs/NUMERICS.md 1) */

/* ek_evidence (shaders/evidence.comp) computes five results of each of n triples: fma(a, b, c), a / b, sqrt(a), a * b
 * and a + c. Grid (ceil(n / 256)), 256 threads. */
enum { EK_VULKAN_RESULTS = 5 };
typedef struct ek_vulkan_evidence_args {
    uint64_t x, y;
    int32_t n;
} ek_vulkan_evidence_args;

/* Sets v->soft: false if the device's own fma is right for every tested input, denormals included; true if only the fma
 * by integers is. VK_ERROR_FEATURE_NOT_PRESENT: neither is right, and the log names the operations. */
VkResult ek_vulkan_choose_arithmetic(ek_vulkan *v);

/* --- memory.c */

/* Maximum bytes of one block. */
size_t ek_vulkan_max_block(const ek_vulkan *v);
/* The place of memory: on the device, on the host, or where the host can write and the device reads fastest; that is
 * the host's memory if the device has none left. */
typedef enum ek_vulkan_place { EK_VULKAN_DEVICE, EK_VULKAN_HOST, EK_VULKAN_BOTH } ek_vulkan_place;

VkResult ek_vulkan_take(ek_vulkan *v, ek_vulkan_block *out, size_t bytes, ek_vulkan_place place);
void ek_vulkan_give(ek_vulkan *v, ek_vulkan_block *b);
/* The block that holds [at, at + bytes), or [p, p + bytes) of host memory; NULL: none. */
const ek_vulkan_block *ek_vulkan_block_at(const ek_vulkan *v, uint64_t at, size_t bytes);
const ek_vulkan_block *ek_vulkan_host_at(const ek_vulkan *v, const void *p, size_t bytes);
void ek_vulkan_room(const ek_vulkan *v, size_t *free, size_t *total);
/* Adds a chunk of host memory to the list, an unused one if there is one; ek_vulkan_give_chunks returns a record's. */
VkResult ek_vulkan_take_chunk(ek_vulkan *v, ek_vulkan_chunk **list, bool stage);
void ek_vulkan_give_chunks(ek_vulkan *v, ek_vulkan_record *r);
void ek_vulkan_free_chunks(ek_vulkan *v);

/* --- stream.c: each command is queued behind earlier ones. */

VkResult ek_vulkan_launch(CUstream s, CUfunction f, const uint32_t grid[3], const void *args);
VkResult ek_vulkan_upload(CUstream s, uint64_t to, const void *from, size_t bytes);
VkResult ek_vulkan_download(CUstream s, void *to, uint64_t from, size_t bytes);
VkResult ek_vulkan_copy(CUstream s, uint64_t to, uint64_t from, size_t bytes);
VkResult ek_vulkan_fill(CUstream s, uint64_t to, uint8_t byte, size_t bytes);
VkResult ek_vulkan_flush(CUstream s);
VkResult ek_vulkan_wait(CUstream s, uint64_t value); /* also makes the late copies */
VkResult ek_vulkan_wait_all(ek_vulkan *v);
VkResult ek_vulkan_is_done(CUstream s, uint64_t value, bool *done);
void ek_vulkan_close_stream(CUstream s);
VkResult ek_vulkan_begin_graph(CUstream s);
VkResult ek_vulkan_end_graph(CUstream s, CUgraph *out);
VkResult ek_vulkan_launch_graph(CUstream s, CUgraph g);
void ek_vulkan_drop_graph(CUgraph g, ek_vulkan *v);

/* --- kernels.c */

/* A shader from the build (shaders.S); `soft` computes fma by integers. */
typedef struct ek_vulkan_shader {
    const char *name;
    const uint32_t *code, *soft;
    uint64_t bytes, soft_bytes;
} ek_vulkan_shader;
extern const ek_vulkan_shader ek_vulkan_shaders[]; /* ends with name NULL */

/* *out NULL with VK_SUCCESS: no kernel has this name. */
VkResult ek_vulkan_find(ek_vulkan *v, CUfunction *out, const char *name);
/* A shader may be specialised by the threads and rows of a workgroup; 0: it is not. */
typedef struct ek_vulkan_size {
    uint32_t threads, tile;
} ek_vulkan_size;
VkResult ek_vulkan_pipeline(ek_vulkan *v, VkPipeline *out, const char *shader, bool soft, ek_vulkan_size size);

#endif
