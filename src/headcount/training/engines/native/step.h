// One step of one run: after the forward pass the slope of the loss, the gradient and AdamW.

// Which of the V queries at column p are sources of key q.
static inline Mask positive(const Context& context, int q, int p) {
    return (int32_t(context.sources[q + 1] >> p) & (1 << lanes())) != 0;
}

// ∂/∂S of (1/ℓ²) Σ_pq [w₊ y softplus(−z) + (1 − y) softplus(z)], z = α(S − τ); returns the sum.
PHASE float logistic_slope(const Run& run, const Work& work, const Context& context) {
    const int length = run.length;
    const float pairs = length * length, scale = run.sharpness / pairs, tau = run.threshold[0];
    float weight = length - 1;  // of a permutation; Eq. (30) otherwise
    if (run.degree != 1)
        weight = context.positives ? (pairs - context.positives) / context.positives : 0;
    Vec total = {};
    for (int q = 0; q < length; q++)
        for (int p = 0; p < length; p += V) {
            Vec z = (load(work.joined + q * work.positions + p) - tau) * run.sharpness;
            Vec chance = 1 / (1 + exponential(-z));
            Vec slope = select(positive(context, q, p), (chance - 1) * weight, chance) * scale;
            slope = select(lanes() < length - p, slope, Vec{});  // padded queries must not move τ
            store(work.slope + q * work.positions + p, slope);
            total += slope;
        }
    return sum(total);
}

// The errors (S − y) V of Section 7.2 for the V positions at column p, in columns: [width][V]. They
// are zero where a position is not valid. Returns their squares.
static Vec retrieval_errors(const Run& run, const Work& work, const Context& context, int p) {
    const Mask valid = (int32_t(context.valid >> p) & (1 << lanes())) != 0;
    Vec total = {};
    for (int i = 0; i < run.width; i += DEPTH) {
        Vec errors[DEPTH] = {};
        for (int q = 0; q < run.length; q++) {
            const Vec score = load(work.joined + q * work.positions + p);
            const Vec weight = select(positive(context, q, p), score - 1, score);
            const float* message = run.messages + int64_t(context.items[q]) * run.width + i;
            for (int r = 0; r < DEPTH; r++) errors[r] += weight * message[r];
        }
        for (int r = 0; r < DEPTH; r++) {
            const Vec error = select(valid, errors[r], Vec{});
            store(work.error + (i + r) * V, error);
            total += error * error;
        }
    }
    return total;
}

// ∂/∂S of Eq. (4); returns the sum.
static float retrieval_slope(const Run& run, const Work& work, const Context& context) {
    const float scale = 2.f / (context.valid ? __builtin_popcountll(context.valid) : 1);
    Vec total = {};
    for (int p = 0; p < run.length; p += V) {
        retrieval_errors(run, work, context, p);
        for (int q = 0; q < run.length; q += KEYS) {
            const float* messages[KEYS];
            for (int r = 0; r < KEYS; r++) {
                const int32_t item = context.items[q + r < run.length ? q + r : 0];
                messages[r] = run.messages + int64_t(item) * run.width;
            }
            Vec slopes[KEYS] = {};
            for (int i = 0; i < run.width; i++) {
                const Vec error = load(work.error + i * V);
                for (int r = 0; r < KEYS; r++) slopes[r] += error * messages[r][i];
            }
            for (int r = 0; r < KEYS && q + r < run.length; r++) {
                slopes[r] *= scale;
                store(work.slope + (q + r) * work.positions + p, slopes[r]);
                total += slopes[r];
            }
        }
    }
    return sum(total);
}

// The last columns of a head may share a vector with the next head: a mask keeps them apart.
static inline ShortMask within(int columns) {
    ShortMask lane;
    for (int i = 0; i < H; i++) lane[i] = i;
    return lane < columns;
}

// out_r += Σ_c weight[r, c]·in_c for the columns of [Q K] that T holds and `kept` keeps.
template <class T, class M>
static inline void mix_columns(const Run& run, const float* weight, int row, int column,
                               const float* in, float* out, M kept) {
    for (int r = 0; r < run.length; r += DEPTH) {
        T sums[DEPTH] = {};
        for (int c = 0; c < run.length; c++) {
            const T value = load<T>(in + c * run.columns);
            for (int s = 0; s < DEPTH; s++) sums[s] += value * weight[(r + s) * row + c * column];
        }
        for (int s = 0; s < DEPTH; s++) {
            float* to = out + (r + s) * run.columns;
            store(to, load<T>(to) + (T)((M)sums[s] & kept));
        }
    }
}

// The same for all columns of a head.
static void mix(const Run& run, const float* weight, int row, int column, const float* in,
                float* out) {
    int a = 0;
    for (; a + V <= run.key_dim; a += V)
        mix_columns<Vec>(run, weight, row, column, in + a, out + a, ~Mask{});
    for (; a < run.key_dim; a += H)
        mix_columns<Short>(run, weight, row, column, in + a, out + a, within(run.key_dim - a));
}

// The gradient of the query and key of head k from the slopes of its scores (rows are keys).
static void move_head(const Run& run, const Work& work, const float* slope, int k) {
    const int query = k * run.key_dim, key = work.budget + key_column(run, k);
    mix(run, slope, 1, work.positions, work.projected + key, work.moved + query);
    mix(run, slope, work.positions, 1, work.projected + query, work.moved + key);
}

// The pairs along diagonals q = p + shift mod ℓ: neighbours in this order share no row, so
// `move_winners` does not load what it has just stored.
static void list_pairs(const Run& run, const Work& work) {
    const int row = run.columns;
    Pair* pair = work.pairs;
    for (int shift = 0; shift < run.length; shift++)
        for (int p = 0; p < run.length; p++) {
            int q = (p + shift) % run.length;
            *pair++ = {q * work.positions + p, p * row, q * row + work.budget};
        }
}

// Each pair moves the head that won it, H columns at a time, in the order of `list_pairs`.
template <bool shared>
PHASE void move_winners(const Run& run, const Work& work) {
    const float* const slopes = work.slope;
    const int32_t* const winners = work.winner;
    const Pair* const end = work.pairs + run.length * run.length;
    for (int a = 0; a < run.key_dim; a += H) {
        const ShortMask kept = within(run.key_dim - a);
        const float* from = work.projected + a;
        float* to = work.moved + a;
        for (const Pair* pair = work.pairs; pair < end; pair++) {
            const Short slope = slopes[pair->at] - Short{};
            const int32_t winner = winners[pair->at];
            const uint32_t query = pair->query + winner;
            const uint32_t key = pair->key + (shared ? work.key_columns[winner] : winner);
            Short with_key = slope * (Short)(load<ShortMask>(from + key) & kept);
            Short with_query = slope * (Short)(load<ShortMask>(from + query) & kept);
            store(to + query, load<Short>(to + query) + with_key);
            store(to + key, load<Short>(to + key) + with_query);
        }
    }
}

// Slopes of the joined scores to gradients of [Q K].
PHASE void move(const Run& run, const Work& work) {
    const int n = work.positions;
    __builtin_memset(work.moved, 0, sizeof(float) * n * run.columns);
    const bool softmax = run.variant == SOFTMAX, per_head = softmax || run.variant == LOGSUMEXP;
    const bool sum = run.variant == SUM;
    if (!per_head && !sum && run.heads > FEW_HEADS)
        return run.share == 1 ? move_winners<false>(run, work) : move_winners<true>(run, work);
    const float scale = 1 / __builtin_sqrtf(float(run.key_dim));
    for (int k = 0; k < run.heads; k++) {
        // Holds the head's shares before, its slopes after.
        float* own = work.share + (per_head ? int64_t(k) * n * n : 0);
        for (int p = 0; p < run.length; p += V) {
            Vec mean = {};
            for (int q = 0; q < run.length && softmax; q++)
                mean += load(own + q * n + p) * load(work.slope + q * n + p);
            for (int q = 0; q < run.length; q++) {
                Vec slope = load(work.slope + q * n + p);
                if (softmax) slope = load(own + q * n + p) * (slope - mean) * scale;
                else if (per_head) slope *= load(own + q * n + p);
                else if (!sum) {
                    const Mask winner = load<Mask>(work.winner + q * n + p);
                    slope = select(winner == k * run.key_dim, slope, Vec{});
                }
                store(own + q * n + p, slope);
            }
        }
        move_head(run, work, own, k);
    }
}

// AdamW. `scales` holds the rate and the bias corrections of this step (adam_scales).
template <class T, class Root>
static inline void adam(T& value, T& first, T& second, T slope, const float* scales, Root root) {
    first = first * 0.9f + slope * 0.1f;
    second = second * 0.999f + slope * slope * 0.001f;
    value -= scales[0] * first / (root(second) * scales[1] + 1e-8f);
}

// Gradient of [W_Q W_K] and AdamW in one pass over the state: the gradient never leaves registers,
// and each of the three parts of the state is read and written once per step.
PHASE void update(const Run& run, const Work& work, const float* given) {
    // Copies: a store might otherwise change what they are read from, for all that compilers know.
    float *const weights = run.weights, *const firsts = run.first, *const seconds = run.second;
    const float scales[2] = {given[0], given[1]};
    const int length = run.length, depth = run.depth, columns = run.columns;
    for (int c = 0; c < columns; c += V)
        for (int i = 0; i < depth; i += DEPTH) {
            const float* x = work.x + int64_t(i) * work.positions;
            const float* moved = work.moved + c;
            Vec slopes[DEPTH] = {};
            for (int p = 0; p < length; p++, moved += columns, x += DEPTH) {
                const Vec own = load(moved);
                UNROLLED for (int r = 0; r < DEPTH; r++) slopes[r] += own * x[r];
            }
            int64_t at = int64_t(c) * depth + i * V;
            UNROLLED for (int r = 0; r < DEPTH; r++, at += V) {
                Vec weight = load(weights + at), first = load(firsts + at);
                Vec second = load(seconds + at);
                adam(weight, first, second, slopes[r], scales, square_root);
                store(weights + at, weight);
                store(firsts + at, first);
                store(seconds + at, second);
            }
        }
}

static void step(Run& run, const Work& work, const Context& context, const float* scales) {
    const float* rows[64];
    for (int p = 0; p < work.positions; p++) rows[p] = work.projected + p * run.columns;
    gather(run, context.items, run.length, work.positions, work.x);
    project(run, work.x, work.positions, work.projected);
    join<true>(run, work, rows);
    float total = run.variant == VALUE ? retrieval_slope(run, work, context)
                                       : logistic_slope(run, work, context);
    move(run, work);
    run.taken++;
    // A score that is not finite makes the sum of the slopes not finite: one test per step.
    if (!run.diverged && !__builtin_isfinite(total)) run.diverged = run.taken;
    update(run, work, scales);
    float *tau = run.threshold, slope = run.variant == VALUE ? 0 : -total;
    adam(tau[0], tau[1], tau[2], slope, scales, [](float value) { return __builtin_sqrtf(value); });
}
