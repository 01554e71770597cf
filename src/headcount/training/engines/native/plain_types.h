// Vectors as arrays: the operations of the compiler's vector types that the kernels use, lane by
// lane. Comparisons give −1 or 0. A cast from one type of lanes to the other keeps the bits.
template <class T>
struct Array {
    T lane[V];

    Array() = default;
    Array(T value) {
        for (int i = 0; i < V; i++) lane[i] = value;
    }
    template <class U>
    explicit Array(const Array<U>& other) {
        __builtin_memcpy(lane, other.lane, sizeof lane);
    }
    T& operator[](int i) { return lane[i]; }
    const T& operator[](int i) const { return lane[i]; }

    template <class F>
    static Array made(F value) {
        Array result;
        for (int i = 0; i < V; i++) result.lane[i] = value(i);
        return result;
    }

#define LANEWISE(op) \
    friend Array operator op(const Array& a, const Array& b) { \
        return made([&](int i) { return wrapped(a.lane[i]) op wrapped(b.lane[i]); }); \
    } \
    friend Array& operator op##=(Array& a, const Array& b) { return a = a op b; }
    LANEWISE(+)
    LANEWISE(-)
    LANEWISE(*)
    LANEWISE(/)
    LANEWISE(&)
    LANEWISE(|)
    LANEWISE(^)
    LANEWISE(<<)
#undef LANEWISE
    friend Array operator>>(const Array& a, int count) {  // keeps the sign
        return made([&](int i) { return a.lane[i] >> count; });
    }
    Array operator-() const {
        return made([&](int i) { return T(-lane[i]); });
    }
    Array operator~() const {
        return made([&](int i) { return ~lane[i]; });
    }

#define COMPARED(op) \
    friend Array<int32_t> operator op(const Array& a, const Array& b) { \
        return Array<int32_t>::made([&](int i) { return -int32_t(a.lane[i] op b.lane[i]); }); \
    }
    COMPARED(<)
    COMPARED(>)
    COMPARED(==)
    COMPARED(!=)
#undef COMPARED

  private:
    // Integers wrap around, as those of vector types do.
    static float wrapped(float value) { return value; }
    static uint32_t wrapped(int32_t value) { return value; }
};
typedef Array<float> Vec;
typedef Array<int32_t> Mask;
constexpr int H = V;
typedef Vec Short;
typedef Mask ShortMask;

static inline Vec select(const Mask& mask, const Vec& yes, const Vec& no) {
    return Vec::made([&](int i) { return mask[i] ? yes[i] : no[i]; });
}
static inline Mask select(const Mask& mask, const Mask& yes, const Mask& no) {
    return Mask::made([&](int i) { return mask[i] ? yes[i] : no[i]; });
}
static inline Vec converted(const Mask& value) {
    return Vec::made([&](int i) { return float(value[i]); });
}
static inline void transpose(Vec (&r)[V]) {
    for (int i = 0; i < V; i++)
        for (int j = 0; j < i; j++) {
            const float kept = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = kept;
        }
}
