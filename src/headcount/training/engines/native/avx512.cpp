// The kernels for AVX-512: 16 floats per vector.
#include "run.h"
#if HEADCOUNT_AVX
#include <immintrin.h>
#define HEADCOUNT_LEVEL "avx512"
#define HEADCOUNT_WIDTH 16
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma")
#endif
namespace avx512 {
#include "kernel.h"
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
