// A CUDA driver whose devices are the CPU (device.h): a library that is opened in place of libcuda.so.1. The kernels
// are linked in and found by name; a graph repeats what was queued while it was recorded. Streams run at once, but for
// those of devices whose bits are set in EK_EMULATED_LAZY: these run as late as can be, when the host, an event or
// another device waits for them, so that a wait that is missing shows. A kernel that waits for other devices begins
// when they have come; where they never will, the host's wait fails as by a watchdog.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emulate/run.h"

extern "C" {
#include "cuda/api.h"
#include "cuda/exchange_args.h"
}

namespace
{

constexpr size_t MEMORY = (size_t)4 << 30;
constexpr int DEVICES = 4;                         // all of one kind, which reach each other's memory
constexpr CUresult TIMEOUT = 702, NOT_READY = 600; // CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_NOT_READY

struct item {
    std::function<void()> run;
    std::function<bool()> ready; // none: it always is
    std::function<void()> tire;  // what it waits for did not come in time
};
typedef std::vector<item> work;
struct block {
    size_t bytes;
    int device;
};
std::map<uint64_t, block> blocks;
size_t used[DEVICES];
char contexts[DEVICES];
int current; // of the one thread that enters contexts
work *recording;
int thing;

struct stream {
    std::deque<item> waiting;
    uint64_t issued, done;
    bool busy; // its first item is being run
};
stream streams[2 * DEVICES]; // of each device, and behind those a second one
int made[DEVICES];

struct event {
    stream *of; // NULL: never recorded
    uint64_t at;
};

// Whether the first item could be run.
bool run_first(stream *s)
{
    if (s->busy || s->waiting.empty() || (s->waiting.front().ready && !s->waiting.front().ready())) return false;
    const item first = std::move(s->waiting.front());
    s->waiting.pop_front();
    s->busy = true;
    first.run();
    s->busy = false;
    s->done++;
    return true;
}

bool is_lazy(const stream *s)
{
    const char *mask = getenv("EK_EMULATED_LAZY");
    return mask && atoi(mask) >> (s - streams) % DEVICES & 1;
}

// Whether an item of any stream could be run: of one that is late only where no other has one.
bool run_one()
{
    for (const bool late : {false, true})
        for (stream &s : streams)
            if (is_lazy(&s) == late && run_first(&s)) return true;
    return false;
}

// False: what it waits for never comes, and what was queued is dropped.
bool run_to(stream *s, uint64_t n)
{
    while (s->done < n) {
        if (run_first(s) || run_one()) continue;
        if (s->busy) return true; // a wait within a wait: who runs it goes on
        s->waiting.clear(), s->done = s->issued;
        return false;
    }
    return true;
}

// Of items that wait for others in vain the first one's time is over: false: there is none.
bool tire_one()
{
    for (stream &s : streams)
        if (!s.busy && !s.waiting.empty() && s.waiting.front().tire) {
            s.waiting.front().tire();
            return true;
        }
    return false;
}

// EK_EMULATED_LOST=N: whose exchange is the N-th from here on, from then on nothing that it leaves is there for another
// device.
bool is_lost(int rank)
{
    static int lost = -1;
    const char *count = getenv("EK_EMULATED_LOST");
    const int left = count ? atoi(count) : 0;
    if (left == 1) lost = rank;
    if (left > 0) setenv("EK_EMULATED_LOST", std::to_string(left - 1).c_str(), 1);
    if (!count) lost = -1;
    return lost == rank;
}

// All that runs at once.
void go_on()
{
    for (bool any = true; any;) {
        any = false;
        for (stream &s : streams)
            while (!is_lazy(&s) && run_first(&s)) any = true;
    }
}

int device_of(CUcontext c)
{
    return (int)((char *)c - contexts);
}

CUresult queue_item(CUstream to, const item &i)
{
    stream *const s = (stream *)to;
    if (recording) {
        recording->push_back(i);
        return 0;
    }
    s->waiting.push_back(i);
    s->issued++;
    if (!is_lazy(s)) go_on();
    return 0;
}

CUresult queue(CUstream to, std::function<void()> f)
{
    return queue_item(to, {f, nullptr, nullptr});
}

// The halves of an exchange: what is left for others, at once, and what is taken from them, once they have left it.
std::vector<uint8_t> half_of(std::vector<uint8_t> args, int32_t half)
{
    memcpy(args.data() + offsetof(ek_cuda_exchange_args, half), &half, sizeof half);
    return args;
}

// What number a device has left last for others, by its landing.
std::map<uint64_t, uint32_t> sent;

uint32_t number_of(const ek_cuda_exchange_args &w)
{
    return *(const uint32_t *)(uintptr_t)w.step * EK_CUDA_EXCHANGES + (uint32_t)w.index;
}

ek_cuda_exchange_args exchange_of(const std::vector<uint8_t> &args)
{
    ek_cuda_exchange_args w;
    memcpy(&w, args.data(), sizeof w);
    return w;
}

bool they_came(const std::vector<uint8_t> &args)
{
    const ek_cuda_exchange_args w = exchange_of(args);
    for (int r = 0; r < w.ranks; r++)
        if (r != w.rank && (!sent.count(w.landing[r]) || (int)(sent[w.landing[r]] - number_of(w)) < 0))
            return ((const ek_cuda_exchange_control *)(uintptr_t)w.control[w.rank])->lost;
    return true;
}

void give_up(ek_cuda_ptr control)
{
    ((ek_cuda_exchange_control *)(uintptr_t)control)->lost = 1;
}

// The argument's size is not known: a structure of at most as many bytes, on a stack with more than those above it.
__attribute__((no_sanitize("address"))) std::vector<uint8_t> argument(const void *from)
{
    std::vector<uint8_t> a(EK_EMULATED_ARGS);
    const volatile uint8_t *p = (const volatile uint8_t *)from;
    for (size_t i = 0; i < a.size(); i++) a[i] = p[i];
    return a;
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) CUresult

API cuInit(unsigned)
{
    return 0;
}
API cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
API cuDeviceGetCount(int *count)
{
    *count = DEVICES;
    return 0;
}
API cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return 0;
}
API cuDeviceGetName(char *name, int room, CUdevice)
{
    strncpy(name, "emulated device", (size_t)room);
    return 0;
}
API cuDeviceGetAttribute(int *value, int attribute, CUdevice)
{
    static const char *const wanted = getenv("EK_EMULATED_MULTIPROCESSORS"); // few, so that a block has much to do
    const int multiprocessors = wanted ? atoi(wanted) : 3;
    *value = attribute == EK_CU_ATTR_MAJOR   ? ek_emulated_capability() / 10
             : attribute == EK_CU_ATTR_MINOR ? ek_emulated_capability() % 10
                                             : multiprocessors;
    return 0;
}
API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)&contexts[device];
    return 0;
}
API cuDevicePrimaryCtxRelease(CUdevice)
{
    return 0;
}
API cuCtxSetCurrent(CUcontext context)
{
    current = context ? device_of(context) : 0;
    return 0;
}
API cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    *can = device != peer && !getenv("EK_EMULATED_APART");
    return 0;
}
API cuCtxEnablePeerAccess(CUcontext, unsigned)
{
    return 0;
}
API cuMemGetInfo(size_t *free, size_t *total)
{
    *free = MEMORY - used[current], *total = MEMORY;
    return 0;
}
API cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
    void *at;
    if (bytes > MEMORY - used[current] || posix_memalign(&at, 256, bytes)) return EK_CU_OUT_OF_MEMORY;
    memset(at, 0xA5, bytes);
    *p = (CUdeviceptr)(uintptr_t)at;
    blocks[*p] = {bytes, current}, used[current] += bytes;
    return 0;
}
API cuMemFree(CUdeviceptr p)
{
    for (stream &s : streams) run_to(&s, s.issued); // as the driver waits for what may use it
    used[blocks[p].device] -= blocks[p].bytes;
    sent.erase(sent.lower_bound(p), sent.lower_bound(p + blocks[p].bytes));
    blocks.erase(p);
    free((void *)(uintptr_t)p);
    return 0;
}
API cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    *p = malloc(bytes);
    return *p ? 0 : EK_CU_OUT_OF_MEMORY;
}
API cuMemFreeHost(void *p)
{
    free(p);
    return 0;
}
API cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream on)
{
    return queue(on, [=] { memcpy((void *)(uintptr_t)to, from, bytes); });
}
API cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream on)
{
    return queue(on, [=] { memcpy(to, (void *)(uintptr_t)from, bytes); });
}
API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream on)
{
    return queue(on, [=] { memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes); });
}
API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream on)
{
    return queue(on, [=] { memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes); });
}
API cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream on)
{
    return queue(on, [=] {
        memset((void *)(uintptr_t)p, value, n);
        sent.erase(sent.lower_bound(p), sent.lower_bound(p + n)); // landings that hold no numbers any more
    });
}
API cuStreamSynchronize(CUstream s);
API cuStreamCreate(CUstream *stream, unsigned)
{
    *stream = (CUstream)&streams[current + (made[current]++ ? DEVICES : 0)];
    return 0;
}
API cuStreamDestroy(CUstream s)
{
    made[((stream *)s - streams) % DEVICES]--;
    return cuStreamSynchronize(s);
}
API cuStreamSynchronize(CUstream s)
{
    return run_to((stream *)s, ((stream *)s)->issued) ? 0 : TIMEOUT;
}
API cuEventCreate(CUevent *out, unsigned)
{
    *out = (CUevent) new event();
    return 0;
}
API cuEventDestroy(CUevent e)
{
    delete (event *)e;
    return 0;
}
API cuEventRecord(CUevent e, CUstream s)
{
    *(event *)e = {(stream *)s, ((stream *)s)->issued};
    return 0;
}
API cuEventSynchronize(CUevent e)
{
    const event of = *(event *)e;
    return !of.of || run_to(of.of, of.at) ? 0 : TIMEOUT;
}
// Asked for, devices get on by one item; where none can, who waits gives up.
API cuEventQuery(CUevent e)
{
    const event of = *(event *)e;
    if (!of.of || of.of->done >= of.at) return 0;
    return run_one() || tire_one() ? NOT_READY : TIMEOUT;
}
API cuStreamWaitEvent(CUstream s, CUevent e, unsigned)
{
    const event of = *(event *)e; // as it was recorded last
    if (!of.of) return 0;
    return queue(s, [=] { run_to(of.of, of.at); });
}
API cuEventElapsedTime(float *ms, CUevent, CUevent)
{
    *ms = 0;
    return 0;
}
API cuModuleLoadData(CUmodule *module, const void *)
{
    *module = (CUmodule)&thing;
    return 0;
}
API cuModuleUnload(CUmodule)
{
    return 0;
}
// Whether the code for the device has the kernel: of others than 9.0 not all that are linked in.
static bool has(const char *name)
{
    static const char *const of_80[] = {
#include "emulate/kernels_80.inc"
        nullptr};
    static const char *const of_100[] = {
#include "emulate/kernels_100.inc"
        nullptr};
    static const char *const of_120[] = {
#include "emulate/kernels_120.inc"
        nullptr};
    const int major = ek_emulated_capability() / 10;
    if (major == 9) return true;
    for (const char *const *one = major < 9 ? of_80 : major < 12 ? of_100 : of_120; *one; one++)
        if (!strcmp(*one, name)) return true;
    return false;
}
API cuModuleGetFunction(CUfunction *function, CUmodule, const char *name)
{
    static void *self; // this library, whose symbols are not global
    Dl_info info;
    if (!self && dladdr(&thing, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = (CUfunction)(self && !strncmp(name, "ek_", 3) && has(name) ? dlsym(self, name) : nullptr);
    return *function ? 0 : 500; // CUDA_ERROR_NOT_FOUND
}
// Bytes of dynamic shared memory that a block may have.
static size_t most_shared()
{
    const int capability = ek_emulated_capability();
    return (capability == 80 || capability == 87 ? 163 : capability < 90 || capability >= 120 ? 99 : 227) << 10;
}
API cuFuncSetAttribute(CUfunction, int, int value)
{
    return (size_t)value > most_shared();
}
// With EK_EMULATED_TOGETHER blocks of products run together, which takes twice the time: some have nodes in global
// memory, and those of one must not lie where another's do. Tiles do not, for they have a __shared__ variable, which
// all blocks would share here.
static unsigned together_of(CUfunction f)
{
    static const bool together = getenv("EK_EMULATED_TOGETHER");
    Dl_info info;
    if (!together || !dladdr((const void *)f, &info) || !info.dli_sname) return 1;
    return !strncmp(info.dli_sname, "ek_product", 10) && !strstr(info.dli_sname, "_tile") ? 8 : 1;
}
API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args, void **)
{
    if (c->gridDimY > 65535 || c->gridDimZ > 65535 || c->sharedMemBytes > most_shared()) return 1;
    const std::vector<uint8_t> a = argument(args[0]);
    const unsigned x = c->gridDimX, y = c->gridDimY, z = c->gridDimZ, threads = c->blockDimX;
    const size_t shared = c->sharedMemBytes;
    unsigned cluster = 1;
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == EK_CU_LAUNCH_CLUSTER) cluster = c->attrs[i].value.clusterDim.x;
    const unsigned together = cluster > 1 ? 1 : together_of(f);
    const auto launch = [=](const std::vector<uint8_t> &args) {
        ek_emulated_launch((void (*)(void))f, {x, y, z}, threads, cluster, together, shared, args.data());
    };
    Dl_info info;
    const std::string name = dladdr((const void *)f, &info) && info.dli_sname ? info.dli_sname : "";
    const bool exchanges = name == "ek_exchange_rows" || name == "ek_exchange_words";
    if (!exchanges) return queue(c->hStream, [=] { launch(a); });
    queue(c->hStream, [=] {
        if (is_lost(exchange_of(a).rank)) return;
        launch(half_of(a, EK_CUDA_PUT));
        sent[exchange_of(a).landing[exchange_of(a).rank]] = number_of(exchange_of(a));
    });
    return queue_item(c->hStream, {[=] { launch(half_of(a, EK_CUDA_TAKE)); }, [=] { return they_came(a); },
                                   [=] { give_up(exchange_of(a).control[exchange_of(a).rank]); }});
}
API cuStreamBeginCapture(CUstream, int)
{
    recording = new work;
    return 0;
}
API cuStreamEndCapture(CUstream, CUgraph *graph)
{
    *graph = (CUgraph)recording;
    recording = nullptr;
    return 0;
}
API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long)
{
    *exec = (CUgraphExec) new work(*(work *)graph);
    return 0;
}
API cuGraphLaunch(CUgraphExec exec, CUstream on)
{
    for (const item &i : *(work *)exec) queue_item(on, i);
    return 0;
}
API cuGraphDestroy(CUgraph graph)
{
    delete (work *)graph;
    return 0;
}
API cuGraphExecDestroy(CUgraphExec exec)
{
    delete (work *)exec;
    return 0;
}
API cuGetErrorName(CUresult, const char **name)
{
    *name = "CUDA_ERROR";
    return 0;
}
API cuGetErrorString(CUresult, const char **text)
{
    *text = "an error of the emulated device";
    return 0;
}
API cuGetProcAddress_v2(const char *symbol, void **function, int, uint64_t, int *status)
{
    static const struct {
        const char *name;
        void *at;
    } table[] = {
#define CU(name, args) {#name, (void *)name},
        EK_CUDA_FUNCTIONS(CU)
#undef CU
    };
    *status = 0;
    for (const auto &e : table)
        if (!strcmp(e.name, symbol)) {
            *function = e.at;
            return 0;
        }
    return 500;
}
