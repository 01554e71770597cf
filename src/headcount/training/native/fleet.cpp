// The library's face: which levels this machine has, and runs spread over threads.
#include "run.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const Kernel* const kernels[] = {
    &baseline::kernel,
#if defined(__x86_64__)
    &avx2::kernel,
    &avx512::kernel,
#endif
};

// Numbers below 10⁻³⁸ count as zero: no result shows it, and some machines take a hundred times longer over them.
static void flush_tiny_numbers() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

// How often each pair of items stands in the contexts: table[target][source], edges negated.
static void count_pairs(const Run* run, int32_t* table) {
    const int length = run->length;
    for (int64_t n = 0; n < run->context_count; n++) {
        const int32_t* items = run->contexts + n * length;
        for (int q = 0; q < length; q++) {
            int32_t* row = table + int64_t(items[q]) * run->stride;
            for (int p = 0; p < length; p++) row[items[p]]++;
        }
    }
    for (int64_t item = 0; item < run->items; item++)
        for (int k = 0; k < run->degree; k++) {
            int32_t& count = table[run->targets[item * run->degree + k] * int64_t(run->stride) + item];
            count = -count;
        }
}

// Runs under way, spread over threads. A run belongs to one thread, so its bits depend on nothing else.
struct Job {
    volatile int32_t stop = 0;

    Job(const Kernel& kernel, Run* runs, int count, int64_t steps, int threads, char* scratch, int64_t bytes)
        : working(threads) {
        for (int n = 0; n < threads; n++)
            crew.emplace_back([=, &kernel, this] { work(kernel, runs, count, steps, scratch + n * bytes); });
    }
    ~Job() {
        for (auto& thread : crew) thread.join();
    }
    bool wait(int milliseconds) {
        std::unique_lock<std::mutex> held(lock);
        return done.wait_for(held, std::chrono::milliseconds(milliseconds), [this] { return working == 0; });
    }

  private:
    std::vector<std::thread> crew;
    std::atomic<int> next{0};
    std::mutex lock;
    std::condition_variable done;
    int working;

    void work(const Kernel& kernel, Run* runs, int count, int64_t steps, char* scratch) {
        flush_tiny_numbers();
        std::vector<int32_t> table;
        for (int n; (n = next++) < count && !stop;) {
            Run& run = runs[n];
            if (steps < 0) {
                kernel.draw(run, -steps, scratch, &stop);
                continue;
            }
            kernel.train(run, steps, scratch, &stop);
            const bool counting = run.stride && !run.counts;
            if (counting) {
                table.assign(int64_t(run.stride) * run.stride, 0);
                count_pairs(&run, table.data());
                run.counts = table.data();
            }
            kernel.evaluate(run, scratch, &stop);
            if (counting) run.counts = nullptr;
        }
        std::lock_guard<std::mutex> held(lock);
        if (--working == 0) done.notify_all();
    }
};

#pragma GCC visibility push(default)
extern "C" {

// The highest level that the machine runs.
int headcount_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
               ? 2
               : 1;
#else
    return 0;
#endif
}

// Lets Python see whether its idea of a run is this library's.
int headcount_run_size() { return sizeof(Run); }

int headcount_width(int level) { return kernels[level]->width; }

void headcount_count(const Run* run, int32_t* table) { count_pairs(run, table); }

// Bytes of scratch that a thread needs for this run.
int64_t headcount_bytes(int level, const Run* run) { return kernels[level]->bytes(*run); }

// Begin every run's `steps` steps and its evaluation after them; for negative `steps` only draw as many contexts.
Job* headcount_start(int level, Run* runs, int count, int64_t steps, int threads, char* scratch, int64_t bytes) {
    return new Job(*kernels[level], runs, count, steps, threads, scratch, bytes);
}

// Wait for the end, but no longer than this; says whether it has come.
int headcount_wait(Job* job, int milliseconds) { return job->wait(milliseconds); }

// Wait for the end, or bring it about within a step: runs that are not at their end stay where they are.
void headcount_end(Job* job) {
    job->stop = 1;
    delete job;
}
}
#pragma GCC visibility pop
