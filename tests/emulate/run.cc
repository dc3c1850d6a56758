// The threads of a block, or of a cluster of blocks, as fibers (device.h), and launches.
#include "emulate/run.h"

#include <sys/mman.h>
#include <vector>

#include "cuda/kernels/device.cuh"
#include "emulate/races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

ek_emulated_place ek_emulated_thread, ek_emulated_block, ek_emulated_block_size, ek_emulated_grid;
uint8_t *ek_emulated_shared;

namespace {

constexpr size_t STACK = 256 << 10;
constexpr int MAX_THREADS = 1024, MAX_CLUSTER = 16, MAX_ARGS = 1024;

[[noreturn]] void fail(const char *what)
{
    fprintf(stderr, "emulated device: %s (block %u %u %u, thread %u)\n", what, ek_emulated_block.x, ek_emulated_block.y,
            ek_emulated_block.z, ek_emulated_thread.x);
    abort();
}

// --- fibers

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct fiber {
    uint8_t *stack;
    bool ended;
    std::vector<std::vector<copy>> groups; // copies on their way; the last group is open
#if defined(__x86_64__)
    void *top; // saved stack pointer
#else
    ucontext_t context;
#endif
    void *fake; // of the address sanitizer
    void *race; // of the thread sanitizer
};

struct warp {
    uint32_t alive, mask, arrived, generation;
    ek_emulated_words words[8][32]; // of a generation: lanes that were left out of some may still read older ones
};

// The blocks of a cluster run at once. Fibers and warps are numbered through all of them.
struct block {
    ek_emulated_place at;
    uint8_t *shared;
    int n_alive, in_barrier;
    uint32_t generation; // of its barrier
    unsigned pace;       // its threads run in one round of so many
};

fiber fibers[MAX_THREADS * MAX_CLUSTER], home;
warp warps[MAX_THREADS * MAX_CLUSTER / 32];
block cluster[MAX_CLUSTER];
int n_threads, n_blocks, n_alive, running, in_barrier; // threads of a block; of the cluster: blocks, threads
uint32_t barrier_generation;                           // of the cluster's barrier
uint64_t progress;
unsigned seed, rounds;
void (*kernel)(void);
alignas(16) uint8_t arguments[MAX_ARGS];

struct args {
    uint8_t bytes[MAX_ARGS];
};

#if defined(__x86_64__)
// void ek_emulated_switch(void **save, void *to): what a callee must keep, then the stack
extern "C" void ek_emulated_switch(void **save, void *to);
asm(R"(
    .text
    .hidden ek_emulated_switch
    .globl ek_emulated_switch
    .type ek_emulated_switch, @function
ek_emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#endif

void change(fiber &from, fiber &to)
{
    ek_race_change(&to.race);
#if defined(__SANITIZE_ADDRESS__)
    const bool out = from.ended && &from != &home;
    static const void *home_bottom;
    static size_t home_size;
    __sanitizer_start_switch_fiber(out ? nullptr : &from.fake, &to == &home ? home_bottom : to.stack,
                                   &to == &home ? home_size : STACK);
#endif
#if defined(__x86_64__)
    ek_emulated_switch(&from.top, to.top);
#else
    swapcontext(&from.context, &to.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(from.fake, &bottom, &size);
    if (&from != &home && !home_bottom) home_bottom = bottom, home_size = size;
#endif
}

char launched, finished; // places: of a launch's start and end

void to_next();

void ended()
{
    ek_race_tell(&finished);
    fiber &f = fibers[running];
    warp &w = warps[running / 32];
    block &b = cluster[running / n_threads];
    for (auto &g : f.groups)
        if (!g.empty()) fail("a thread ended before its copies had arrived");
    f.groups.clear();
    f.ended = true;
    progress++, n_alive--, b.n_alive--;
    w.alive &= ~(1u << running % 32);
    if (b.in_barrier && b.in_barrier == b.n_alive) b.in_barrier = 0, b.generation++;
    if (in_barrier && in_barrier == n_alive) in_barrier = 0, barrier_generation++;
    if (w.arrived && w.arrived == (uint32_t)__builtin_popcount(w.mask & w.alive)) w.arrived = 0, w.generation++;
    to_next();
}

void start_of_fiber()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    ek_race_see(&launched);
    ((void (*)(args))kernel)(*(const args *)arguments);
    ended();
}

void prepare(fiber &f)
{
    ek_race_quiet quiet;
    if (!f.stack) {
        void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) fail("no memory for a stack");
        f.stack = (uint8_t *)p;
    }
    f.ended = false, f.fake = nullptr;
    f.groups.assign(1, {});
#if defined(__x86_64__)
    void **top = (void **)(f.stack + STACK - 64);
    *--top = nullptr; // where start_of_fiber would return to
    *--top = (void *)start_of_fiber;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f.top = top;
#else
    getcontext(&f.context);
    f.context.uc_stack = {f.stack, 0, STACK};
    f.context.uc_link = nullptr;
    makecontext(&f.context, start_of_fiber, 0);
#endif
}

void run(int thread)
{
    const block &b = cluster[thread / n_threads];
    running = thread;
    ek_emulated_thread = {(unsigned)(thread % n_threads), 0, 0};
    ek_emulated_block = b.at;
    ek_emulated_shared = b.shared;
}

// The next thread that has not ended; in launches of odd number the threads run in descending order.
void to_next()
{
    const int from = running;
    if (n_alive == 0) {
        change(fibers[from], home);
        return;
    }
    const int all = n_threads * n_blocks, step = seed & 1 ? all - 1 : 1;
    int next = from;
    do {
        if (next == (step == 1 ? all - 1 : 0)) rounds++;
        next = (next + step) % all;
    } while (fibers[next].ended || rounds % cluster[next / n_threads].pace);
    if (next == from) return;
    run(next);
    change(fibers[from], fibers[next]);
}

template <class F> void wait_until(F ready)
{
    uint64_t before = progress;
    for (long turns = 0; !ready(); turns++) {
        if (before != progress) before = progress, turns = 0;
        if (turns > 16) fail("threads wait for each other without end");
        to_next();
    }
    progress++;
}

// Blocks first .. first + n_blocks - 1 in x. Not in step: some are several times as fast as others.
void run_cluster(ek_emulated_place first, size_t shared, bool in_step)
{
    const int all = n_threads * n_blocks;
    n_alive = all, in_barrier = 0;
    for (int i = 0; i < n_blocks; i++) {
        block &b = cluster[i];
        const unsigned pace = in_step ? 1 : 1 + (seed * 7 + (unsigned)i * 5) % 6;
        b = {{first.x + (unsigned)i, first.y, first.z}, nullptr, n_threads, 0, 0, pace};
        if (posix_memalign((void **)&b.shared, 1024, shared + 1)) fail("no memory");
        memset(b.shared, 0xA5, shared);
    }
    for (int i = 0; i < all; i++) prepare(fibers[i]);
    for (int w = 0; w < all / 32; w++) warps[w].alive = ~0u, warps[w].arrived = 0;
    ek_race_home(&home.race);
    ek_race_tell(&launched);
    run(seed & 1 ? all - 1 : 0);
    change(home, fibers[running]);
    ek_race_see(&finished);
    for (int i = 0; i < n_blocks; i++) free(cluster[i].shared);
}

// --- copies

void arrive(std::vector<copy> &group)
{
    ek_race_quiet quiet;
    for (const copy &c : group) memcpy(c.to, c.from, c.bytes);
    group.clear();
}

struct piece {
    uint64_t *arrived;
    copy what;  // from nullptr: `word`
    float word; // sent by a thread
};
std::vector<piece> pieces;

} // namespace

// --- what the kernels call

void ek_emulated_pause(void)
{
    to_next();
}

void ek_emulated_barrier(void)
{
    static char places[MAX_CLUSTER][2];
    block &b = cluster[running / n_threads];
    const uint32_t mine = b.generation;
    char *const place = &places[running / n_threads][mine % 2];
    ek_race_tell(place);
    if (++b.in_barrier == b.n_alive) b.in_barrier = 0, b.generation++, progress++;
    else wait_until([&] { return b.generation != mine; });
    ek_race_see(place);
}

void ek_emulated_cluster_barrier(void)
{
    static char places[2];
    const uint32_t mine = barrier_generation;
    ek_race_tell(&places[mine % 2]);
    if (++in_barrier == n_alive) in_barrier = 0, barrier_generation++, progress++;
    else wait_until([&] { return barrier_generation != mine; });
    ek_race_see(&places[mine % 2]);
}

const ek_emulated_words *ek_emulated_share(uint32_t mask, const void *words, size_t bytes)
{
    static char places[MAX_THREADS * MAX_CLUSTER / 32][2];
    warp &w = warps[running / 32];
    const int lane = running % 32;
    const uint32_t mine = w.generation;
    char *const place = &places[running / 32][mine % 2];
    ek_emulated_words *const all = w.words[mine % 8];
    if (bytes) {
        ek_race_quiet quiet;
        memcpy(all[lane], words, bytes);
    } else ek_race_tell(place); // __syncwarp
    if (!(mask >> lane & 1)) fail("a lane that its mask leaves out");
    if (w.arrived && w.mask != mask) fail("lanes of a warp wait with different masks");
    w.mask = mask;
    if (++w.arrived == (uint32_t)__builtin_popcount(mask & w.alive)) {
        w.arrived = 0, w.generation++, progress++;
    } else {
        wait_until([&] { return w.generation != mine; });
    }
    if (!bytes) ek_race_see(place);
    return all;
}

void ek_emulated_copy(void *to, const void *from, size_t bytes)
{
    ek_race_write(to, bytes);
    ek_race_quiet quiet;
    fibers[running].groups.back().push_back({to, from, bytes});
}

void ek_emulated_commit(void)
{
    ek_race_quiet quiet;
    fibers[running].groups.emplace_back();
}

void ek_emulated_wait(int groups_left)
{
    ek_race_quiet quiet;
    auto &groups = fibers[running].groups;
    const int n = (int)groups.size() - 1; // committed
    int done = n - groups_left;
    if (groups_left == 0) arrive(groups.back());
    for (int i = 0; i < done; i++) arrive(groups[(size_t)i]);
    if (done > 0) groups.erase(groups.begin(), groups.begin() + done);
}

// The word of an arrival: bytes expected in the low half; in the high half the phase in bit 0, and from bit 8 on how
// often it must be told in a phase, from bit 20 on how often it was.
void ek_emulated_tell(uint64_t *arrived)
{
    ek_race_tell(arrived);
    uint64_t told = (*arrived >> 52) + 1, of = *arrived >> 40 & 0xfff;
    const bool ends = told == of;
    if (ends) told = 0;
    *arrived = told << 52 | of << 40 | ((*arrived >> 32 & 1) ^ ends) << 32;
    ek_emulated_pause();
}

void ek_emulated_expect(uint64_t *arrived, uint32_t bytes)
{
    if ((uint32_t)*arrived) fail("an arrival is expected twice");
    *arrived = *arrived >> 32 << 32 | bytes;
}

void ek_emulated_piece(void *to, const void *from, size_t bytes, uint64_t *arrived)
{
    if (((uintptr_t)to | (uintptr_t)from | bytes) & 15) fail("a piece that is not of multiples of 16 bytes");
    ek_race_write(to, bytes), ek_race_tell(arrived);
    ek_race_quiet quiet;
    pieces.push_back({arrived, {to, from, bytes}, 0});
}

void ek_emulated_send(float *to, float v, uint64_t *arrived, unsigned block)
{
    const uint8_t *const own = cluster[running / n_threads].shared;
    if (block >= (unsigned)n_blocks) fail("a word for a block that the cluster does not have");
    uint8_t *const other = cluster[block].shared;
    uint64_t *const told = (uint64_t *)(other + ((uint8_t *)arrived - own));
    uint8_t *const place = other + ((uint8_t *)to - own);
    ek_race_write(place, sizeof v), ek_race_tell(told);
    ek_race_quiet quiet;
    pieces.push_back({told, {place, nullptr, sizeof v}, v});
}

void ek_emulated_await(uint64_t *arrived, uint32_t phase)
{
    wait_until([&] {
        ek_race_quiet quiet;
        if ((*arrived >> 32 & 1) != phase) return true; // this phase has passed
        uint32_t due = (uint32_t)*arrived;
        if (due == 0) return false;
        for (size_t i = 0; i < pieces.size();) {
            if (pieces[i].arrived != arrived) {
                i++;
                continue;
            }
            const float word = pieces[i].word;
            const copy c = pieces[i].what;
            pieces.erase(pieces.begin() + (long)i);
            memcpy(c.to, c.from ? c.from : &word, c.bytes);
            if (c.bytes > due) fail("more bytes arrive than were expected");
            due -= (uint32_t)c.bytes;
        }
        *arrived = *arrived >> 32 << 32 | due;
        if (due) return false;
        *arrived = (*arrived ^ (uint64_t)1 << 32) >> 32 << 32;
        return true;
    });
    ek_race_see(arrived);
}

// Lane l has of a: rows l / 4 and l / 4 + 8, inputs 4 (l % 4) and 16 + 4 (l % 4); of b: column l / 4, the same inputs;
// of d: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and that + 1.
void ek_emulated_mma(int (&d)[4], const uint32_t *a, uint32_t b0, uint32_t b1)
{
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const ek_emulated_words *all = ek_emulated_share(~0u, mine, sizeof mine);
    const int lane = running % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const int column = 2 * t + i % 2;
        for (int q = 0; q < 4; q++)
            for (int half = 0; half < 2; half++) {
                const uint32_t x = all[g * 4 + q][half * 2 + i / 2], y = all[column * 4 + q][4 + half];
                for (int e = 0; e < 4; e++) d[i] += (int8_t)(x >> 8 * e) * (int8_t)(y >> 8 * e);
            }
    }
}

// A warp's 16 outputs of the warpgroup's 64: its product needs no other warp. Element k of column n of b lies where the
// 128-byte swizzle puts it (src/cuda/kernels/device.cuh).
void ek_emulated_wgmma(int *d, int columns, bool kept, const uint32_t *a, const void *b)
{
    const ek_emulated_words *all = ek_emulated_share(~0u, a, 4 * sizeof *a);
    const int lane = running % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < columns / 2; i++) {
        const int n = i / 4 * 8 + 2 * t + i % 2, half = i / 2 % 2;
        int sum = kept ? d[i] : 0;
        for (int k = 0; k < 32; k++) {
            uintptr_t at = (uintptr_t)b + (uintptr_t)(n / 8 * 1024 + n % 8 * 128 + k);
            at ^= (at >> 7 & 7) << 4;
            const int8_t *x = (const int8_t *)&all[g * 4 + k % 16 / 4][half + k / 16 * 2];
            sum += x[k % 4] * *(const int8_t *)at;
        }
        d[i] = sum;
    }
}

// --- launches

void ek_emulated_launch(void (*f)(void), const unsigned (&grid)[3], unsigned threads, unsigned blocks,
                        unsigned together, size_t shared, const uint8_t *a)
{
    if (threads == 0 || threads > MAX_THREADS || threads % 32) fail("a launch of an odd number of threads");
    if (blocks == 0 || blocks > MAX_CLUSTER || grid[0] % blocks) fail("a launch of odd clusters");
    if (together > 1 && blocks > 1) fail("clusters run one after the other");
    const unsigned step = blocks > 1 ? blocks : together;
    kernel = f, n_threads = (int)threads;
    memcpy(arguments, a, MAX_ARGS);
    ek_emulated_grid = {grid[0], grid[1], grid[2]}, ek_emulated_block_size = {threads, 1, 1};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x += step) {
                n_blocks = (int)(grid[0] - x < step ? grid[0] - x : step);
                run_cluster({x, y, z}, shared, step == blocks);
                if (!pieces.empty()) fail("a block ended before its copies had arrived");
            }
    seed++;
}
