// Vectors in the compiler's own vector types, and what else gcc and clang offer for them.
typedef float Vec __attribute__((vector_size(4 * V)));
typedef int32_t Mask __attribute__((vector_size(4 * V)));
constexpr int H = V < 8 ? V : 8;
typedef float Short __attribute__((vector_size(4 * H)));
typedef int32_t ShortMask __attribute__((vector_size(4 * H)));

static inline Vec select(Mask mask, Vec yes, Vec no) { return mask ? yes : no; }
static inline Mask select(Mask mask, Mask yes, Mask no) { return mask ? yes : no; }
static inline Vec converted(Mask value) { return __builtin_convertvector(value, Vec); }

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
    UNROLLED for (int i = 0; i < V; i += 4) {
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
    UNROLLED for (int i = 0; i < V; i++)
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
