// Forward: from a context's embeddings to scores joined across heads. Scores are stored transposed:
// rows are keys q, and queries p run along the vector, so that a softmax over keys needs no sums
// across lanes.

// Tiles are as large as the registers (32 with AVX-512 and NEON, else 16) hold accumulators for:
// each load then serves as many multiply-adds as possible.
constexpr int REGISTERS = V == 16 || HEADCOUNT_NEON ? 32 : 16;
constexpr int ROWS = REGISTERS == 32 ? 16 : 8;  // positions projected together
constexpr int KEYS = REGISTERS == 32 ? 8 : 4;   // keys scored together
constexpr int DEPTH = 8;  // rows of W handled together; `depth` is a multiple of it
// Up to this many heads, summing over all pairs costs less than picking those that a head won.
constexpr int FEW_HEADS = 2;

static inline int padded(int n, int to) { return (n + to - 1) / to * to; }

// Hands out pieces of the scratch.
struct Arena {
    uintptr_t at;
    template <class T>
    T* take(size_t count) {
        uintptr_t here = at;
        // A spare cache line: heads are read and written H columns at a time, past their end too.
        at += (count * sizeof(T) + 127) / 64 * 64;
        return reinterpret_cast<T*>(here);
    }
};

// A pair of positions: the index of its slope, and the rows of its query and key in [Q K].
struct Pair {
    int32_t at, query, key;
};

// Everything a step needs besides the state. It fits L1 or L2 at the paper's shapes and is reused
// from step to step, as the state is: a run streams nothing but embedding rows from memory.
struct Work {
    const int budget, positions;  // D_K, ℓ padded
    float *x, *projected, *moved, *queries, *joined, *slope, *share, *error;
    int32_t *winner, *entry, *key_columns;
    Pair* pairs;
    uint8_t* place;

    Work(const Run& run, Arena& arena)
        : budget(run.heads * run.key_dim), positions(padded(run.length, 16)) {
        size_t square = size_t(positions) * positions;
        x = arena.take<float>(size_t(run.depth) * positions);  // [depth / DEPTH][positions][DEPTH]
        projected = arena.take<float>(positions * run.columns);      // [Q K]
        moved = arena.take<float>(positions * run.columns);          // its gradient
        queries = arena.take<float>(size_t(V) * padded(budget, V));  // Qᵀ of V positions: [D_K][V]
        joined = arena.take<float>(square);
        slope = arena.take<float>(square);
        winner = arena.take<int32_t>(square);
        pairs = arena.take<Pair>(size_t(run.length) * run.length);
        const bool per_head = run.variant == SOFTMAX || run.variant == LOGSUMEXP;
        share = arena.take<float>(square * (per_head ? run.heads : 1));
        // The first column of the key, by the first column of the head; heads share keys.
        key_columns = run.share == 1 ? nullptr : arena.take<int32_t>(budget);
        error = arena.take<float>(size_t(V) * run.width);  // of V positions: [width][V]
        entry = arena.take<int32_t>(run.items);
        place = arena.take<uint8_t>(run.items);
    }
};

// The embeddings of `count` items in blocks of DEPTH columns; the rows up to `rows` are zero.
PHASE void gather(const Run& run, const int32_t* items, int count, int rows, float* x) {
    for (int p = 0; p < rows; p++) {
        const float* row = run.rows + int64_t(items[p < count ? p : 0]) * run.width;
        for (int i = 0; i < run.depth; i += DEPTH) {
            float* to = x + i * rows + p * DEPTH;
            p < count ? __builtin_memcpy(to, row + i, sizeof(float) * DEPTH)
                      : __builtin_memset(to, 0, sizeof(float) * DEPTH);
        }
    }
}

// out = X [W_Q W_K]. A panel of V columns of W is contiguous, so weights stream in order, and each
// is read once for ROWS positions.
PHASE void project(const Run& run, const float* x, int rows, float* out) {
    for (int c = 0; c < run.columns; c += V)
        for (int p = 0; p < rows; p += ROWS) {
            const float* w = run.weights + int64_t(c) * run.depth;
            const float* from = x + p * DEPTH;
            Vec sums[ROWS] = {};
            for (int i = 0; i < run.depth; i += DEPTH, from += rows * DEPTH)
                for (int r = 0; r < DEPTH; r++, w += V) {
                    Vec weight = load(w);
                    UNROLLED for (int s = 0; s < ROWS; s++)
                        sums[s] += weight * from[s * DEPTH + r];
                }
            UNROLLED for (int s = 0; s < ROWS; s++)
                store(out + (p + s) * run.columns + c, sums[s]);
        }
}

// Qᵀ of V rows: [D_K][V].
static void transpose_queries(const float* const* rows, int budget, float* out) {
    for (int c = 0; c < budget; c += V) {
        Vec tile[V];
        UNROLLED for (int r = 0; r < V; r++) tile[r] = load(rows[r] + c);
        transpose(tile);
        UNROLLED for (int r = 0; r < V; r++) store(out + (c + r) * V, tile[r]);
    }
}

// The first column of the key of head k.
static inline int key_column(const Run& run, int k) {
    return (run.share == 1 ? k : k / run.share) * run.key_dim;
}

// Adds S⁽ᵏ⁾ of KEYS keys and V queries; `head` and `key` are the first columns of the head's query
// and of its key.
static inline void add_scores(const float* const* keys, const float* queries, int head, int key,
                              int key_dim, Vec (&scores)[KEYS]) {
    queries += head * V;
    for (int a = 0; a < key_dim; a++) {
        Vec query = load(queries + a * V);
        UNROLLED for (int r = 0; r < KEYS; r++) scores[r] += query * keys[r][key + a];
    }
}

static inline void score(const float* const* keys, const float* queries, int head, int key,
                         int key_dim, Vec (&scores)[KEYS]) {
    UNROLLED for (int r = 0; r < KEYS; r++) scores[r] = Vec{};
    add_scores(keys, queries, head, key, key_dim, scores);
}

// max over heads, and in training the first column of the head that has it. Of equal scores the
// first head wins, as argmax does in the reference. In training NaN wins and stays: a plain maximum
// would drop it, and a diverged run would go unnoticed. SUM adds the scores of all heads.
template <bool training>
static inline void best_head(const Run& run, const float* const* keys, const float* queries,
                             Vec (&best)[KEYS], Mask (&winner)[KEYS]) {
    score(keys, queries, 0, 0, run.key_dim, best);
    for (int r = 0; r < KEYS; r++) winner[r] = Mask{};
    int key = 0, left = run.share;  // heads that the key still has
    for (int head = run.key_dim; head < run.heads * run.key_dim; head += run.key_dim) {
        if (!--left) key += run.key_dim, left = run.share;
        if (run.variant == SUM) {
            add_scores(keys, queries, head, key, run.key_dim, best);
            continue;
        }
        Vec scores[KEYS];
        score(keys, queries, head, key, run.key_dim, scores);
        for (int r = 0; r < KEYS; r++) {
            Mask better = scores[r] > best[r];
            if (training) better |= scores[r] != scores[r];
            best[r] = select(better, scores[r], best[r]);
            winner[r] = select(better, head - Mask{}, winner[r]);
        }
    }
}

// Σ_k softmax(S⁽ᵏ⁾/√d_k) for V queries at column p; in training the shares of every head are kept.
template <bool training>
static void join_softmax(const Run& run, const Work& work, const float* const* keys,
                         const float* queries, int p) {
    const float scale = 1 / __builtin_sqrtf(float(run.key_dim));
    const int n = work.positions;
    for (int q = 0; q < run.length; q++) store(work.joined + q * n + p, Vec{});
    for (int k = 0; k < run.heads; k++) {
        float* share = work.share + (training ? int64_t(k) * n * n : 0) + p;
        const int key = key_column(run, k);
        Vec top = splat(-__builtin_inff()), total = {};
        for (int q = 0; q < run.length; q += KEYS) {
            Vec scores[KEYS];
            score(keys + q, queries, k * run.key_dim, key, run.key_dim, scores);
            for (int r = 0; r < KEYS; r++) {
                store(share + (q + r) * n, scores[r] * scale);
                // Padded keys are not in the context and must not count.
                const Vec scaled = scores[r] * scale;
                if (q + r < run.length) top = select(top > scaled, top, scaled);
            }
        }
        for (int q = 0; q < run.length; q++) {
            Vec power = exponential(load(share + q * n) - top);
            store(share + q * n, power);
            total += power;
        }
        for (int q = 0; q < run.length; q++) {
            Vec part = load(share + q * n) / total;
            if (training) store(share + q * n, part);
            store(work.joined + q * n + p, load(work.joined + q * n + p) + part);
        }
    }
}

// t·log Σ_k exp(S⁽ᵏ⁾/t) of KEYS keys and V queries. The summands of head k and key r are left at
// share + k·head + r·row, and their sums in `total`.
static inline void log_sum(const Run& run, const float* const* keys, const float* queries,
                           float* share, int64_t head, int row, Vec (&total)[KEYS],
                           Vec (&joined)[KEYS]) {
    const float scale = 1 / run.temperature;
    Vec top[KEYS];
    for (int r = 0; r < KEYS; r++) top[r] = splat(-__builtin_inff()), total[r] = Vec{};
    for (int k = 0; k < run.heads; k++) {
        Vec scores[KEYS];
        score(keys, queries, k * run.key_dim, key_column(run, k), run.key_dim, scores);
        for (int r = 0; r < KEYS; r++) {
            store(share + k * head + r * row, scores[r]);
            top[r] = select(top[r] > scores[r], top[r], scores[r]);
        }
    }
    for (int k = 0; k < run.heads; k++)
        for (int r = 0; r < KEYS; r++) {
            float* own = share + k * head + r * row;
            Vec power = exponential((load(own) - top[r]) * scale);
            store(own, power);
            total[r] += power;
        }
    for (int r = 0; r < KEYS; r++) joined[r] = top[r] + logarithm(total[r]) * run.temperature;
}

// The same for V queries at column p and all keys; in training the heads' shares are kept.
template <bool training>
static void join_log_sum(const Run& run, const Work& work, const float* const* keys,
                         const float* queries, int p) {
    const int n = work.positions;
    for (int q = 0; q < run.length; q += KEYS) {
        float* share = work.share + int64_t(q) * n + p;
        Vec total[KEYS], joined[KEYS];
        log_sum(run, keys + q, queries, share, int64_t(n) * n, n, total, joined);
        for (int r = 0; r < KEYS; r++) store(work.joined + (q + r) * n + p, joined[r]);
        for (int k = 0; k < run.heads && training; k++)
            for (int r = 0; r < KEYS; r++) {
                float* own = share + int64_t(k) * n * n + r * n;
                store(own, load(own) / total[r]);
            }
    }
}

// Scores of a context joined across heads, and in training the heads that won. Row r of [Q K] is
// rows[r]; there are `positions` of them.
template <bool training>
PHASE void join(const Run& run, const Work& work, const float* const* rows) {
    const float* keys[64];
    for (int q = 0; q < work.positions; q++) keys[q] = rows[q] + work.budget;
    for (int p = 0; p < run.length; p += V) {
        transpose_queries(rows + p, work.budget, work.queries);
        if (run.variant == SOFTMAX) {
            join_softmax<training>(run, work, keys, work.queries, p);
            continue;
        }
        if (run.variant == LOGSUMEXP) {
            join_log_sum<training>(run, work, keys, work.queries, p);
            continue;
        }
        for (int q = 0; q < run.length; q += KEYS) {
            Vec best[KEYS];
            Mask winner[KEYS];
            best_head<training>(run, keys + q, work.queries, best, winner);
            for (int r = 0; r < KEYS; r++) {
                store(work.joined + (q + r) * work.positions + p, best[r]);
                if (training) store(work.winner + (q + r) * work.positions + p, winner[r]);
            }
        }
    }
}
