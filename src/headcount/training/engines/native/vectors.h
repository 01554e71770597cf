// Vectors of V floats and the few functions on them. V depends on the level.
constexpr int V = HEADCOUNT_WIDTH;
// Vec: floats. Mask: what comparisons give, and lane-wise integers. Short and ShortMask: H ≤ V of
// them, for heads of few columns.
#ifdef HEADCOUNT_PLAIN
#include "plain_types.h"
#else
#include "vector_types.h"
#endif

template <class T, class E>
static inline T load(const E* from) {
    T value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}
static inline Vec load(const float* from) { return load<Vec>(from); }
template <class T, class E>
static inline void store(E* to, T value) { __builtin_memcpy(to, &value, sizeof value); }

static inline Vec splat(float value) { return value - Vec{}; }
static inline Mask lanes() {
    Mask lane;
    for (int i = 0; i < V; i++) lane[i] = i;
    return lane;
}
static inline float sum(Vec value) {
    float total = 0;
    for (int i = 0; i < V; i++) total += value[i];
    return total;
}
static inline double sum(Mask value) {
    double total = 0;
    for (int i = 0; i < V; i++) total += value[i];
    return total;
}

static inline Vec square_root(Vec value) {
#if HEADCOUNT_WIDTH == 16
    return _mm512_sqrt_ps(value);
#elif HEADCOUNT_WIDTH == 8
    return _mm256_sqrt_ps(value);
#elif HEADCOUNT_NEON && !defined(HEADCOUNT_PLAIN)
    return (Vec)vsqrtq_f32((float32x4_t)value);
#else
    for (int i = 0; i < V; i++) value[i] = __builtin_sqrtf(value[i]);
    return value;
#endif
}

// The smaller and the larger number; b where one is NaN. Compilers do not find these instructions
// where a is a constant.
static inline Vec smaller(Vec a, Vec b) {
#if HEADCOUNT_WIDTH == 16
    return _mm512_min_ps(a, b);
#elif HEADCOUNT_WIDTH == 8
    return _mm256_min_ps(a, b);
#else
    return select(a < b, a, b);
#endif
}
static inline Vec larger(Vec a, Vec b) {
#if HEADCOUNT_WIDTH == 16
    return _mm512_max_ps(a, b);
#elif HEADCOUNT_WIDTH == 8
    return _mm256_max_ps(a, b);
#else
    return select(a > b, a, b);
#endif
}

// eˣ to about one unit in the last place; x is cut to ±87. NaN stays NaN if its low bits are zero,
// as they are in those that arithmetic makes.
static inline Vec exponential(Vec x) {
    x = larger(splat(-87.f), smaller(splat(87.f), x));
    // 1.5·2²³: adding it rounds to a whole number, which the low bits of the sum then hold.
    const float shift = 12582912.f;
    Vec shifted = x * 1.44269504f + shift, whole = shifted - shift;
    // ln 2 in two parts: the first has few bits, so its product with `whole` is exact.
    Vec f = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    Vec power = splat(1 / 5040.f);
    power = power * f + 1 / 720.f;
    power = power * f + 1 / 120.f;
    power = power * f + 1 / 24.f;
    power = power * f + 1 / 6.f;
    power = power * f + 0.5f;
    power = power * f + 1.f;
    power = power * f + 1.f;
    // Times 2^whole: `whole` is added to the exponent, where it lands alone, as the low 9 bits of
    // `shift` are zero.
    return (Vec)((Mask)power + ((Mask)shifted << 23));
}

// ln x to about one unit in the last place, for normal x > 0; NaN and ∞ stay.
static inline Vec logarithm(Vec x) {
    // x = m·2^e with m in [√½, √2): 0x3F3504F3 are the bits of √½.
    Mask bits = (Mask)x, e = (bits - 0x3F3504F3) >> 23;
    Vec m = (Vec)(bits - (e << 23)) - 1.f, square = m * m;
    Vec power = splat(7.0376836292e-2f);
    power = power * m - 1.1514610310e-1f;
    power = power * m + 1.1676998740e-1f;
    power = power * m - 1.2420140846e-1f;
    power = power * m + 1.4249322787e-1f;
    power = power * m - 1.6668057665e-1f;
    power = power * m + 2.0000714765e-1f;
    power = power * m - 2.4999993993e-1f;
    power = power * m + 3.3333331174e-1f;
    Vec whole = converted(e);
    Vec found = power * m * square - whole * 2.12194440e-4f - square * 0.5f + m;
    found += whole * 0.693359375f;
    return select(x < __builtin_inff(), found, x);
}
