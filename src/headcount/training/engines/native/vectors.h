// Vectors of V floats in the compiler's own vector types, and the few functions on them. V depends
// on the level.
constexpr int V = HEADCOUNT_WIDTH;
typedef float Vec __attribute__((vector_size(4 * V)));
typedef int32_t Mask __attribute__((vector_size(4 * V)));  // also lane-wise integers
constexpr int H = V < 8 ? V : 8;  // shorter vectors, for heads of few columns
typedef float Short __attribute__((vector_size(4 * H)));
typedef int32_t ShortMask __attribute__((vector_size(4 * H)));

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
#else
    for (int i = 0; i < V; i++) value[i] = __builtin_sqrtf(value[i]);
    return value;
#endif
}

// eˣ to about one unit in the last place; x is cut to ±87, NaN stays NaN.
static inline Vec exponential(Vec x) {
    x = x > 87.f ? splat(87.f) : x;
    x = x < -87.f ? splat(-87.f) : x;
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
    // times 2^whole, built in the exponent bits; 0x4B400000 are the bits of `shift`
    return power * (Vec)(((Mask)shifted + (127 - 0x4B400000)) << 23);
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
    Vec whole = __builtin_convertvector(e, Vec);
    Vec found = power * m * square - whole * 2.12194440e-4f - square * 0.5f + m;
    found += whole * 0.693359375f;
    return x < __builtin_inff() ? found : x;
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Mask{__VA_ARGS__})
#endif

template <int... I>
struct Lanes {};
template <int N, int... I>
struct Counted : Counted<N - 1, N - 1, I...> {};
template <int... I>
struct Counted<0, I...> { typedef Lanes<I...> type; };

// Transposes 4 × 4 tiles: within quarters of 4 lanes, first by single lanes, then by pairs.
template <int... I>
static inline void transpose_quads(Vec* r, Lanes<I...>) {
    for (int i = 0; i < V; i += 4) {
        Vec a = SHUFFLE(r[i], r[i + 1], ((I & ~3) + ((I & 3) >> 1) + (I & 1) * V)...);
        Vec b = SHUFFLE(r[i], r[i + 1], ((I & ~3) + ((I & 3) >> 1) + (I & 1) * V + 2)...);
        Vec c = SHUFFLE(r[i + 2], r[i + 3], ((I & ~3) + ((I & 3) >> 1) + (I & 1) * V)...);
        Vec d = SHUFFLE(r[i + 2], r[i + 3], ((I & ~3) + ((I & 3) >> 1) + (I & 1) * V + 2)...);
        r[i] = SHUFFLE(a, c, ((I & ~3) + (I & 1) + (I & 2) / 2 * V)...);
        r[i + 1] = SHUFFLE(a, c, ((I & ~3) + (I & 1) + (I & 2) / 2 * V + 2)...);
        r[i + 2] = SHUFFLE(b, d, ((I & ~3) + (I & 1) + (I & 2) / 2 * V)...);
        r[i + 3] = SHUFFLE(b, d, ((I & ~3) + (I & 1) + (I & 2) / 2 * V + 2)...);
    }
}

// Swaps the off-diagonal S × S tiles of every 2S × 2S tile.
template <int S, int... I>
static inline void swap_tiles(Vec* r, Lanes<I...>) {
    for (int i = 0; i < V; i++)
        if (!(i & S)) {
            Vec a = r[i], b = r[i | S];
            r[i] = SHUFFLE(a, b, ((I & S) ? V + I - S : I)...);
            r[i | S] = SHUFFLE(a, b, ((I & S) ? V + I : I + S)...);
        }
}

static inline void transpose(Vec (&r)[V]) {
    Counted<V>::type all;
    transpose_quads(r, all);
    if constexpr (V >= 8) swap_tiles<4>(r, all);
    if constexpr (V >= 16) swap_tiles<8>(r, all);
}
