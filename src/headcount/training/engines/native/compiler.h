// What compilers differ in: which levels they can build, and the names of a few functions.
#pragma once
#include <cstddef>
#include <cstdint>

// gcc and clang (clang-cl too) have vector types; every other compiler builds level `plain` alone.
// PHASE: phases of a step are compiled separately; inlined together they would spill registers.
// UNROLLED: a loop over accumulators, which stay in registers only where it is unrolled. Compilers
// unroll short ones by themselves, but clang not those over 16.
#if defined(__GNUC__) || defined(__clang__)
#define HEADCOUNT_VECTORS 1
#define PHASE static __attribute__((noinline))
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#else  // MSVC
#include <cmath>
#include <cstring>
#include <intrin.h>
#define HEADCOUNT_VECTORS 0
#define PHASE static __declspec(noinline)
#define UNROLLED
#define __builtin_memcpy std::memcpy
#define __builtin_memset std::memset
#define __builtin_sqrtf std::sqrt
#define __builtin_isfinite std::isfinite
#define __builtin_inff() INFINITY
static inline int __builtin_ctzll(uint64_t value) {  // value is not 0
    int at = 0;
    while (!(value >> at & 1)) at++;
    return at;
}
static inline int __builtin_popcountll(uint64_t value) {
    int count = 0;
    for (; value; value &= value - 1) count++;
    return count;
}
#endif

#if HEADCOUNT_VECTORS && defined(__aarch64__)
#define HEADCOUNT_NEON 1
#else
#define HEADCOUNT_NEON 0
#endif
#define HEADCOUNT_BASELINE (HEADCOUNT_VECTORS && !HEADCOUNT_NEON)
// Not on Windows, where gcc does not align the stack as AVX needs it, and clang is untried.
#if HEADCOUNT_VECTORS && defined(__x86_64__) && !defined(_WIN32)
#define HEADCOUNT_AVX 1
#else
#define HEADCOUNT_AVX 0
#endif

#if defined(_WIN32)
#define EXPORTED extern "C" __declspec(dllexport)
#else
#define EXPORTED extern "C" __attribute__((visibility("default")))
#endif
