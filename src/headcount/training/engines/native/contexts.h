// Contexts: the same bits as problem/contexts.py and problem/streams.py, one context at a time.
//
// Context n is a function of (key, n) alone, so a run can be stopped, regrouped or resumed on any
// engine and still sees the same contexts.

struct Context {
    int32_t items[64];
    // Bit p of sources[q + 1]: is (item p, item q) an edge? Entry 0 collects targets that are not
    // in the context, so that `label` needs no branch.
    uint64_t sources[65];
    uint64_t valid;  // positions p that have a target in the context
    int positives;
};

// Above this out-degree the items of a context are looked up among an item's neighbours, and not
// the neighbours among the items.
constexpr int HUB = 256;

// SplitMix64 as a function of a counter.
static inline uint64_t word(uint64_t key, uint64_t counter) {
    uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// A uniform 32-bit integer scaled to 0 … bound − 1.
static inline uint32_t below(uint32_t uniform, uint32_t bound) {
    return uint64_t(uniform) * bound >> 32;
}

// place[item] = its position + 1.
static void mark(const Run& run, const Context& context, uint8_t* place) {
    for (int p = 0; p < run.length; p++) place[context.items[p]] = p + 1;
}

static void unmark(const Run& run, const Context& context, uint8_t* place) {
    for (int p = 0; p < run.length; p++) place[context.items[p]] = 0;
}

// The out-neighbours of an item, in order.
struct Neighbors {
    const int32_t* items;
    int64_t count;

    Neighbors(const Run& run, int32_t item) {
        const int64_t first = run.starts ? run.starts[item] : int64_t(item) * run.degree;
        items = run.targets + first;
        count = run.starts ? run.starts[item + 1] - first : run.degree;
    }

    bool is_hub() const { return count > HUB; }

    bool has(int32_t item) const {
        int64_t low = 0, high = count;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (items[middle] < item) low = middle + 1;
            else high = middle;
        }
        return low < count && items[low] == item;
    }

    // Whether one of them is in a marked context.
    bool touch(const Run& run, const Context& context, const uint8_t* place) const {
        int touched = 0;
        if (is_hub())
            for (int q = 0; q < run.length; q++) touched |= has(context.items[q]);
        else
            for (int64_t k = 0; k < count; k++) touched |= place[items[k]];
        return touched;
    }
};

// Context n of the run's stream, marked. `entry` holds 0 … items − 1 before and after: only the
// swaps are undone, so a draw costs O(ℓ) whatever the number of items. `place` held zeros.
static void draw(const Run& run, uint64_t n, Context& context, int32_t* entry, uint8_t* place) {
    const int length = run.length;
    uint64_t pick[64], bring[64], chosen = 0;
    for (int j = 0; j < length; j++) {
        pick[j] = word(run.key, (n * length + j) * 2);
        bring[j] = word(run.key, (n * length + j) * 2 + 1);
    }
    int32_t drawn[64], swapped[64];
    for (int j = 0; j < length; j++) {  // step 1: ℓ swaps of Fisher–Yates
        swapped[j] = j + below(pick[j] >> 32, run.items - j);
        drawn[j] = entry[swapped[j]];
        entry[swapped[j]] = entry[j];
        chosen |= uint64_t((pick[j] & 0xFFFFFFFF) < run.chosen) << j;
    }
    for (int j = 0; j < length; j++) {
        entry[swapped[j]] = swapped[j];
        entry[j] = j;
        context.items[j] = drawn[j];
    }
    mark(run, context, place);
    // Steps 2 and 3: each chosen source that is still in its slot brings one of its targets in,
    // unless one is there already.
    for (; chosen && length > 1; chosen &= chosen - 1) {
        int p = __builtin_ctzll(chosen);
        if (context.items[p] != drawn[p]) continue;
        const Neighbors targets(run, drawn[p]);
        if (!targets.count || targets.touch(run, context, place)) continue;
        int other = below(bring[p] >> 32, length - 1);
        other += other >= p;
        place[context.items[other]] = 0;
        context.items[other] = targets.items[below(bring[p], targets.count)];
        place[context.items[other]] = other + 1;
    }
}

// y_pq of the items of a marked context, which is unmarked.
static void label(const Run& run, Context& context, uint8_t* place) {
    for (int q = 0; q <= run.length; q++) context.sources[q] = 0;
    context.valid = context.positives = 0;
    for (int p = 0; p < run.length; p++) {
        const Neighbors targets(run, context.items[p]);
        auto add = [&](int q) {  // a target at position q − 1, or nowhere
            context.sources[q] |= uint64_t(1) << p;
            context.valid |= uint64_t(q > 0) << p;
            context.positives += q > 0;
        };
        if (targets.is_hub())
            for (int q = 1; q <= run.length; q++) add(targets.has(context.items[q - 1]) ? q : 0);
        else
            for (int64_t k = 0; k < targets.count; k++) add(place[targets.items[k]]);
    }
    unmark(run, context, place);
}
