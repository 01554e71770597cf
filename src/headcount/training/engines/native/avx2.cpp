// The kernels for AVX2 with fused multiply-add: 8 floats per vector.
#include "run.h"
#if HEADCOUNT_AVX
#include <immintrin.h>
#define HEADCOUNT_LEVEL "avx2"
#define HEADCOUNT_WIDTH 8
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
#include "kernel.h"
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
