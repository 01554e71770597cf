// The library's C interface: which levels this machine has, and runs spread over threads.
#include "run.h"

#include <atomic>
#include <exception>
#include <new>
#include <thread>
#include <vector>
#if HEADCOUNT_AVX
#include <cpuid.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#elif defined(_M_ARM64)
#include <float.h>
#endif

// The levels of this build; each later one is faster and asks more of the processor.
static const Kernel* const kernels[] = {
    &plain::kernel,
#if HEADCOUNT_BASELINE
    &baseline::kernel,
#endif
#if HEADCOUNT_NEON
    &neon::kernel,
#endif
#if HEADCOUNT_AVX
    &avx2::kernel,
    &avx512::kernel,
#endif
};

// Numbers below 10⁻³⁸ count as zero: some machines take a hundred times longer over them, and
// Adam's second moments, sums of squares, reach them. It is set per thread, so a step has the same
// bits wherever it runs, and reset at the end: the thread may be one of Python's.
struct TinyNumbersFlushed {
#if defined(__x86_64__) || defined(_M_X64)
    const unsigned before = _mm_getcsr();
    TinyNumbersFlushed() { _mm_setcsr(before | 0x8040); }
    ~TinyNumbersFlushed() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;
    TinyNumbersFlushed() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before));
        __asm__ volatile("msr fpcr, %0" : : "r"(before | 1 << 24));
    }
    ~TinyNumbersFlushed() { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#elif defined(_M_ARM64)
    unsigned before, now;
    TinyNumbersFlushed() {
        _controlfp_s(&before, 0, 0);
        _controlfp_s(&now, _DN_FLUSH, _MCW_DN);
    }
    ~TinyNumbersFlushed() { _controlfp_s(&now, before, _MCW_DN); }
#endif
};

// How often each pair of items is in the contexts: table[target][source], edges negated. The sign
// carries the label, so a check reads one table.
static void count_pairs(const Run* run, int32_t* table) {
    const int length = run->length;
    for (int64_t n = 0; n < run->context_count; n++) {
        const int32_t* items = run->contexts + n * length;
        for (int q = 0; q < length; q++) {
            int32_t* row = table + int64_t(items[q]) * run->stride;
            for (int p = 0; p < length; p++) row[items[p]]++;
        }
    }
    for (int64_t item = 0; item < run->items; item++) {
        const int64_t first = run->starts ? run->starts[item] : item * run->degree;
        const int64_t last = run->starts ? run->starts[item + 1] : first + run->degree;
        for (int64_t k = first; k < last; k++) {
            int32_t& count = table[int64_t(run->targets[k]) * run->stride + item];
            count = -count;
        }
    }
}

// Runs spread over threads. A run stays on one thread for all its steps, so no sum is ever split
// and its bits depend neither on the number of threads nor on the other runs.
struct Job {
    const Kernel& kernel;
    Run* runs;
    int count;
    int64_t steps;
    char* scratch;
    int64_t bytes;
    volatile int32_t* stop;
    std::atomic<int> next{0};
    std::atomic<bool> out_of_memory{false};

    void work(int thread) {
        [[maybe_unused]] TinyNumbersFlushed flushed;
        try {
            while (!*stop && !out_of_memory) {
                const int n = next++;
                if (n >= count) return;
                advance(runs[n], scratch + thread * bytes);
            }
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
        }
    }

  private:
    void advance(Run& run, char* scratch) {
        kernel.train(run, steps, scratch, stop);
        std::vector<int32_t> table;
        const bool counting = run.stride && !run.counts;
        if (counting) {
            table.assign(int64_t(run.stride) * run.stride, 0);
            count_pairs(&run, table.data());
            run.counts = table.data();
        }
        kernel.evaluate(run, scratch, stop);
        if (counting) run.counts = nullptr;
    }
};

#if HEADCOUNT_AVX
static bool all_of(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

// How many of the two AVX levels this machine does not run. __builtin_cpu_supports would ask the
// same, but zig's linker does not find what it needs.
static int missing_levels() {
    unsigned a, b, c, features, extended, saved, high;
    if (!__get_cpuid(1, &a, &b, &features, &c) || !__get_cpuid_count(7, 0, &a, &extended, &b, &c) ||
        !all_of(features, bit_FMA | bit_OSXSAVE))
        return 2;
    // A processor's registers are of use where the system saves them: 6 stands for the 256 bits of
    // AVX, 0xE0 for what AVX-512 adds.
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!all_of(extended, bit_AVX2) || !all_of(saved, 6)) return 2;
    const unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL | bit_AVX512BW;
    return !(all_of(extended, wide) && all_of(saved, 0xE6));
}
#else
static int missing_levels() { return 0; }
#endif

// How many levels, from the first, this machine runs.
EXPORTED int headcount_levels() { return int(sizeof kernels / sizeof *kernels) - missing_levels(); }

EXPORTED const char* headcount_level_name(int level) { return kernels[level]->name; }

// Lets Python see whether its idea of a run is this library's.
EXPORTED int headcount_run_size() { return sizeof(Run); }

EXPORTED int headcount_width(int level) { return kernels[level]->width; }

EXPORTED void headcount_count(const Run* run, int32_t* table) { count_pairs(run, table); }

// Bytes of scratch that a thread needs for this run.
EXPORTED int64_t headcount_bytes(int level, const Run* run) {
    return kernels[level]->bytes(*run);
}

// The training contexts of the run's next `steps` steps: out[steps][length].
EXPORTED void headcount_contexts(int level, const Run* run, int64_t steps, char* scratch,
                                 int32_t* out) {
    kernels[level]->contexts(*run, steps, scratch, out);
}

// Every run's `steps` steps and its evaluation after them. Once `*stop` is set it returns within a
// few steps, and unfinished runs stay where they are. Returns 0, or 1 if memory ran out.
EXPORTED int headcount_run(int level, Run* runs, int count, int64_t steps, int threads,
                           char* scratch, int64_t bytes, volatile int32_t* stop) {
    Job job{*kernels[level], runs, count, steps, scratch, bytes, stop};
    std::vector<std::thread> others;
    try {
        for (int n = 1; n < threads; n++) others.emplace_back([&job, n] { job.work(n); });
    } catch (const std::exception&) {
        // The system gives no more threads: those that are there do all the work.
    }
    job.work(0);
    for (auto& thread : others) thread.join();
    return job.out_of_memory;
}
