// What tools/native_phases.py compiles: the steps of a run with the time of every phase, and the
// rates that bound them. Times are in ticks of the processor's counter.
#include <cstdint>
#include <immintrin.h>

#include "run.h"
#define HEADCOUNT_LEVEL "timed"
#include "kernel.h"

extern "C" uint64_t ticks() { return __builtin_ia32_rdtsc(); }

static inline void lap(uint64_t& before, double& total) {
    const uint64_t now = ticks();
    total += double(now - before);
    before = now;
}

// Tiny numbers count as zero, as in fleet.cpp.
extern "C" void flush_tiny_numbers() { _mm_setcsr(_mm_getcsr() | 0x8040); }

// As `train` of kernel.h: contexts, gather, project, join, slope, move, update.
extern "C" void timed_steps(Run* given, int64_t steps, char* scratch, double* taken) {
    Run& run = *given;
    Arena arena{(uintptr_t(scratch) + 63) / 64 * 64};
    Work work(run, arena);
    prepare_steps(run, work);
    const float* rows[64];
    for (int p = 0; p < work.positions; p++) rows[p] = work.projected + p * run.columns;
    Context context;
    for (int64_t n = 0; n < steps; n++) {
        const float* scales = run.scales + 2 * n;
        uint64_t at = ticks();
        draw(run, run.taken, context, work.entry, work.place);
        label(run, context, work.place);
        lap(at, taken[0]);
        gather(run, context.items, run.length, work.positions, work.x);
        lap(at, taken[1]);
        project(run, work.x, work.positions, work.projected);
        lap(at, taken[2]);
        join<true>(run, work, rows);
        lap(at, taken[3]);
        const bool value = run.variant == VALUE;
        const float total =
            value ? retrieval_slope(run, work, context) : logistic_slope(run, work, context);
        lap(at, taken[4]);
        move(run, work);
        lap(at, taken[5]);
        update(run, work, scales);
        lap(at, taken[6]);
        run.taken++;
        float* tau = run.threshold;
        adam(tau[0], tau[1], tau[2], value ? 0 : -total, scales,
             [](float root) { return __builtin_sqrtf(root); });
    }
}

// Ticks of one check.
extern "C" double timed_check(Run* run, char* scratch) {
    const volatile int32_t stop = 0;
    const uint64_t began = ticks();
    evaluate(*run, scratch, &stop);
    return double(ticks() - began);
}

// Ticks of a multiply-add of V floats, of which nothing waits for another.
extern "C" double timed_multiply_adds(float* numbers, int64_t count) {
    constexpr int CHAINS = REGISTERS / 2;
    Vec sums[CHAINS];  // all different, or a compiler finds that they are one
    const Vec factor = load(numbers);
    UNROLLED for (int s = 0; s < CHAINS; s++) sums[s] = load(numbers + (s + 1) * V);
    const uint64_t began = ticks();
    for (int64_t n = 0; n < count; n += CHAINS)
        UNROLLED for (int s = 0; s < CHAINS; s++) sums[s] = sums[s] * factor + factor;
    const double all = double(ticks() - began);
    UNROLLED for (int s = 0; s < CHAINS; s++) store(numbers + (s + 1) * V, sums[s]);
    return all / count;
}

// Ticks of AdamW on V weights in the L1 cache, whose slopes are given.
extern "C" double timed_adam(float* numbers, int64_t count) {
    constexpr int PART = 1024, APART = 1360;  // floats; apart as runs.py has them
    const float scales[2] = {1e-3f, 1};
    const Vec slope = load(numbers);
    const uint64_t began = ticks();
    for (int64_t n = 0; n < count; n += PART / V)
        for (float* at = numbers; at < numbers + PART; at += V) {
            Vec weight = load(at), first = load(at + APART), second = load(at + 2 * APART);
            adam(weight, first, second, slope, scales, square_root);
            store(at, weight);
            store(at + APART, first);
            store(at + 2 * APART, second);
        }
    return double(ticks() - began) / count;
}
