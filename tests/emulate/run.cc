// The threads of a block, or of a cluster of blocks, as fibers (fiber.h), and launches.
#include "emulate/run.h"

#include <vector>

#include "cuda/kernels/device.cuh"
#include "emulate/fiber.h"
#include "emulate/races.h"

ek_emulated_place ek_emulated_thread, ek_emulated_block, ek_emulated_block_size, ek_emulated_grid;
uint8_t *ek_emulated_shared;

namespace
{

constexpr int MAX_THREADS = 1024, MAX_CLUSTER = 16, MAX_ARGS = 1024, MAX_PACE = 6;

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

struct block;

struct fiber {
    const uint32_t *waits; // its turn is left out while *waits is `seen`
    uint32_t seen;
    bool ended;
    block *of;
    unsigned thread; // of its block
    ek_fiber own;
    std::vector<std::vector<copy>> groups; // copies on their way; the last group is open
};

struct warp {
    uint32_t alive, mask, arrived, wanted, generation; // wanted: to arrive, of the mask
    uint64_t asleep;                                   // no lane can go on while `events` is this
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

fiber fibers[MAX_THREADS * MAX_CLUSTER];
ek_fiber home;
warp warps[MAX_THREADS * MAX_CLUSTER / 32];
block cluster[MAX_CLUSTER], *at_work; // at_work: the running thread's
uint64_t events = 1;                  // how often something changed that threads of several warps wait for
int n_threads, n_blocks, n_alive, running, in_barrier; // threads of a block; of the cluster: blocks, threads
uint32_t barrier_generation;                           // of the cluster's barrier
unsigned seed, rounds;
bool all_in_step; // no block is slower than others
void (*kernel)(void);
alignas(16) uint8_t arguments[MAX_ARGS];

struct args {
    uint8_t bytes[MAX_ARGS];
};

char launched, finished; // places: of a launch's start and end

void to_next();

void wake(uint32_t &generation)
{
    generation++, events++;
}

void wake(warp &w)
{
    w.arrived = 0, w.generation++, w.asleep = 0;
}

void ended()
{
    ek_race_tell(&finished);
    fiber &f = fibers[running];
    warp &w = warps[(unsigned)running / 32];
    block &b = *f.of;
    for (auto &g : f.groups)
        if (!g.empty()) fail("a thread ended before its copies had arrived");
    f.ended = true;
    n_alive--, b.n_alive--;
    w.alive &= ~(1u << running % 32), w.wanted -= w.mask >> running % 32 & 1;
    if (b.in_barrier && b.in_barrier == b.n_alive) b.in_barrier = 0, wake(b.generation);
    if (in_barrier && in_barrier == n_alive) in_barrier = 0, wake(barrier_generation);
    if (w.arrived && w.arrived == w.wanted) wake(w);
    to_next();
}

void start_of_fiber()
{
    ek_fiber_started();
    ek_race_see(&launched);
    ((void (*)(args))kernel)(*(const args *)arguments);
    ended();
}

void prepare(fiber &f)
{
    ek_race_quiet quiet;
    f.ended = false, f.waits = nullptr;
    f.groups.resize(1); // those that there were are empty
    if (!ek_fiber_prepare(f.own, start_of_fiber)) fail("no memory for a stack");
}

void run(int thread)
{
    const fiber &f = fibers[thread];
    running = thread;
    ek_emulated_thread.x = f.thread;
    if (f.of == at_work) return;
    at_work = f.of;
    ek_emulated_block = f.of->at;
    ek_emulated_shared = f.of->shared;
}

bool can_go_on(const fiber &f)
{
    return !f.ended && !(f.waits && *f.waits == f.seen);
}

bool has_turn(const block &b)
{
    return all_in_step || rounds % b.pace == 0;
}

// From a warp's first thread in that order to its first that has a turn, or to its last; whether one has.
bool find_in_warp(int &next, int step)
{
    warp &w = warps[(unsigned)next / 32];
    if (w.asleep != events && has_turn(*fibers[next].of)) {
        for (int i = 0; i < 32; i++)
            if (can_go_on(fibers[next + i * step])) {
                next += i * step;
                return true;
            }
        w.asleep = events;
    }
    next += 31 * step;
    return false;
}

// The next thread that can go on; in launches of odd number the threads run in descending order.
void to_next()
{
    const int from = running;
    if (n_alive == 0) {
        ek_fiber_change(fibers[from].own, home, true);
        return;
    }
    const int all = n_threads * n_blocks, step = seed & 1 ? -1 : 1, last = step == 1 ? all - 1 : 0;
    const unsigned before = rounds;
    const unsigned edge = step == 1 ? 0 : 31;
    int next = from;
    bool found;
    do {
        if (next == last) next = all - 1 - last, rounds++;
        else next += step;
        if (rounds - before > 2 * MAX_PACE) fail("threads wait for each other without end");
        if ((unsigned)next % 32 == edge) found = find_in_warp(next, step);
        else found = can_go_on(fibers[next]) && has_turn(*fibers[next].of);
    } while (!found);
    if (next == from) return;
    run(next);
    ek_fiber_change(fibers[from].own, fibers[next].own, fibers[from].ended);
}

// Until a word that other threads change is not `seen` any more.
void wait_for(const uint32_t &word, uint32_t seen)
{
    fiber &f = fibers[running];
    f.waits = &word, f.seen = seen;
    to_next();
    f.waits = nullptr;
}

// Blocks first .. first + n_blocks - 1 in x. Not in step: some are several times as fast as others.
void run_cluster(ek_emulated_place first, size_t shared, bool in_step)
{
    const int all = n_threads * n_blocks;
    n_alive = all, in_barrier = 0, all_in_step = in_step;
    for (int i = 0; i < n_blocks; i++) {
        block &b = cluster[i];
        const unsigned pace = in_step ? 1 : 1 + (seed * 7 + (unsigned)i * 5) % MAX_PACE;
        b = {{first.x + (unsigned)i, first.y, first.z}, nullptr, n_threads, 0, 0, pace};
        if (posix_memalign((void **)&b.shared, 1024, shared + 1)) fail("no memory");
        memset(b.shared, 0xA5, shared);
    }
    at_work = nullptr;
    for (int i = 0, b = 0; b < n_blocks; b++)
        for (int t = 0; t < n_threads; t++, i++) {
            fibers[i].of = &cluster[b], fibers[i].thread = (unsigned)t;
            prepare(fibers[i]);
        }
    for (int w = 0; w < all / 32; w++) warps[w].alive = ~0u, warps[w].arrived = warps[w].mask = 0, warps[w].asleep = 0;
    ek_race_home(&home.race);
    ek_race_tell(&launched);
    run(seed & 1 ? all - 1 : 0);
    ek_fiber_change(home, fibers[running].own, false);
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
    copy what;  // from nullptr: `word`; to nullptr: a thread's copies before it have come
    float word; // sent by a thread
};

// What is on its way, and how often something was told, expected, sent or has come, by the place of the arrival.
struct post {
    std::vector<piece> pieces;
    uint32_t events;
} posts[1024];
int n_pieces;

post &post_of(const uint64_t *arrived)
{
    return posts[(uintptr_t)arrived / sizeof *arrived % 1024];
}

void send(const piece &p)
{
    post &at = post_of(p.arrived);
    at.pieces.push_back(p), wake(at.events), n_pieces++;
}

} // namespace

// --- what the kernels call

// EK_EMULATED_CAPABILITY: 90, or that of an older device
int ek_emulated_capability(void)
{
    static const char *const wanted = getenv("EK_EMULATED_CAPABILITY");
    return wanted ? atoi(wanted) : 90;
}

bool ek_emulated_bulk(void)
{
    static const bool bulk = ek_emulated_capability() >= 90;
    return bulk;
}

void ek_emulated_pause(void)
{
    to_next();
}

void ek_emulated_barrier(void)
{
    static char places[MAX_CLUSTER][2];
    block &b = *at_work;
    const uint32_t mine = b.generation;
    char *const place = &places[&b - cluster][mine % 2];
    ek_race_tell(place);
    if (++b.in_barrier == b.n_alive) b.in_barrier = 0, wake(b.generation);
    else wait_for(b.generation, mine);
    ek_race_see(place);
}

void ek_emulated_cluster_barrier(void)
{
    static char places[2];
    const uint32_t mine = barrier_generation;
    ek_race_tell(&places[mine % 2]);
    if (++in_barrier == n_alive) in_barrier = 0, wake(barrier_generation);
    else wait_for(barrier_generation, mine);
    ek_race_see(&places[mine % 2]);
}

const ek_emulated_words *ek_emulated_share(uint32_t mask, const void *words, size_t bytes)
{
    static char places[MAX_THREADS * MAX_CLUSTER / 32][2];
    warp &w = warps[(unsigned)running / 32];
    const unsigned lane = (unsigned)running % 32;
    const uint32_t mine = w.generation;
    char *const place = &places[(unsigned)running / 32][mine % 2];
    ek_emulated_words *const all = w.words[mine % 8];
    if (bytes) {
        ek_race_quiet quiet;
        if (bytes == 4) memcpy(all[lane], words, 4); // most are
        else memcpy(all[lane], words, bytes);
    } else ek_race_tell(place); // __syncwarp
    if (!(mask >> lane & 1)) fail("a lane that its mask leaves out");
    if (w.arrived && w.mask != mask) fail("lanes of a warp wait with different masks");
    if (!w.arrived) w.mask = mask, w.wanted = (uint32_t)__builtin_popcount(mask & w.alive);
    if (++w.arrived == w.wanted) {
        wake(w);
    } else {
        wait_for(w.generation, mine);
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
    *arrived = told << 52 | of << 40 | ((*arrived >> 32 & 1) ^ ends) << 32, wake(post_of(arrived).events);
    ek_emulated_pause();
}

void ek_emulated_expect(uint64_t *arrived, uint32_t bytes)
{
    if ((uint32_t)*arrived) fail("an arrival is expected twice");
    *arrived = *arrived >> 32 << 32 | bytes, wake(post_of(arrived).events);
}

void ek_emulated_piece(void *to, const void *from, size_t bytes, uint64_t *arrived)
{
    if (((uintptr_t)to | (uintptr_t)from | bytes) & 15) fail("a piece that is not of multiples of 16 bytes");
    ek_race_write(to, bytes), ek_race_tell(arrived);
    ek_race_quiet quiet;
    send({arrived, {to, from, bytes}, 0});
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
    send({told, {place, nullptr, sizeof v}, v});
}

void ek_emulated_tell_copies(uint64_t *arrived)
{
    ek_race_tell(arrived);
    ek_race_quiet quiet;
    for (auto &group : fibers[running].groups) {
        for (const copy &c : group) send({arrived, c, 0});
        group.clear();
    }
    send({arrived, {nullptr, nullptr, 0}, 0});
}

// The same of an arrival without expected bytes, which threads' copies tell: nothing comes before the last can.
static bool copies_arrived(uint64_t *arrived)
{
    post &at = post_of(arrived);
    const uint64_t of = *arrived >> 40 & 0xfff;
    uint64_t told = *arrived >> 52;
    for (const piece &p : at.pieces) told += p.arrived == arrived && !p.what.to;
    if (told < of) return false;
    for (size_t i = 0; i < at.pieces.size();) {
        const piece p = at.pieces[i];
        if (p.arrived != arrived) {
            i++;
            continue;
        }
        at.pieces.erase(at.pieces.begin() + (long)i), n_pieces--;
        if (p.what.to) memcpy(p.what.to, p.what.from, p.what.bytes);
    }
    if (told > of) fail("more threads' copies arrive than were expected");
    *arrived = of << 40 | ((*arrived >> 32 & 1) ^ 1) << 32, wake(at.events);
    return true;
}

// Takes what is on its way to an arrival; whether its phase is another one then.
static bool arrived_at(uint64_t *arrived, uint32_t phase)
{
    ek_race_quiet quiet;
    post &at = post_of(arrived);
    std::vector<piece> &pieces = at.pieces;
    if ((*arrived >> 32 & 1) != phase) return true;
    uint32_t due = (uint32_t)*arrived;
    if (due == 0) return !ek_emulated_bulk() && copies_arrived(arrived);
    for (size_t i = 0; i < pieces.size();) {
        if (pieces[i].arrived != arrived) {
            i++;
            continue;
        }
        const float word = pieces[i].word;
        const copy c = pieces[i].what;
        pieces.erase(pieces.begin() + (long)i), n_pieces--;
        memcpy(c.to, c.from ? c.from : &word, c.bytes);
        if (c.bytes > due) fail("more bytes arrive than were expected");
        due -= (uint32_t)c.bytes;
    }
    *arrived = *arrived >> 32 << 32 | due;
    if (due) return false;
    *arrived = (*arrived ^ (uint64_t)1 << 32) >> 32 << 32, wake(at.events);
    return true;
}

void ek_emulated_await(uint64_t *arrived, uint32_t phase)
{
    const uint32_t &events = post_of(arrived).events;
    while (!arrived_at(arrived, phase)) wait_for(events, events);
    ek_race_see(arrived);
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
                if (n_pieces) fail("a block ended before its copies had arrived");
            }
    seed++;
}
