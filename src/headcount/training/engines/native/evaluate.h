// The metric of one run on given contexts: objective.tally, summed.

constexpr int BLOCK = 16;  // items projected together: their embeddings stay in L1

struct Evaluation {
    float* projected;  // [Q K] of the items in the contexts
    float* x;          // the embeddings of a block of them
    int32_t *items, *slot;  // slot: where an item's row is, plus 1

    Evaluation(const Run& run, Arena& arena) {
        int64_t most = run.context_count * run.length;
        int rows = padded(most < run.items ? int(most) : run.items, BLOCK);
        projected = arena.take<float>(rows * run.columns);
        x = arena.take<float>(size_t(run.depth) * BLOCK);
        items = arena.take<int32_t>(rows);
        slot = arena.take<int32_t>(run.items);
    }
};

// Projects the items in the contexts, each once; all items in their order where pairs are counted.
static void project_items(const Run& run, const Evaluation& all) {
    int used = 0;
    if (run.counts)
        for (; used < run.items; used++) all.items[used] = used;
    else {
        __builtin_memset(all.slot, 0, sizeof(int32_t) * run.items);
        for (int64_t n = 0; n < run.context_count * run.length; n++) {
            int32_t item = run.contexts[n];
            if (all.slot[item]) continue;
            all.items[used++] = item;
            all.slot[item] = used;
        }
    }
    for (int first = 0; first < used; first += BLOCK) {
        gather(run, all.items + first, used - first < BLOCK ? used - first : BLOCK, BLOCK, all.x);
        project(run, all.x, BLOCK, all.projected + first * run.columns);
    }
}

// But under softmax, a pair is predicted or not whatever its context: one pass over all pairs,
// weighted by their counts, replaces a pass over thousands of contexts.
static void tally_pairs(Run& run, const Work& work, const Evaluation& all,
                        const volatile int32_t* stop) {
    const int rows = padded(run.items, 16);
    const float* keys[16];
    const float tau = run.threshold[0];
    Mask hits = {}, wrong = {};  // up to 10⁶ contexts of 64² pairs, spread over at least 4 lanes
    for (int p = 0; p < rows && !*stop; p += V) {
        for (int r = 0; r < V; r++) keys[r] = all.projected + (p + r) * run.columns;
        transpose_queries(keys, work.budget, work.queries);
        for (int q = 0; q < rows; q += KEYS) {
            Vec best[KEYS], total[KEYS];
            Mask winner[KEYS];
            for (int r = 0; r < KEYS; r++)
                keys[r] = all.projected + (q + r) * run.columns + work.budget;
            if (run.variant == LOGSUMEXP)
                log_sum(run, keys, work.queries, work.share, KEYS * V, V, total, best);
            else
                best_head<false>(run, keys, work.queries, best, winner);
            for (int r = 0; r < KEYS; r++) {
                // Padded items have count 0 and add nothing.
                Mask count = load<Mask>(run.counts + int64_t(q + r) * run.stride + p);
                Mask predicted = best[r] > tau;
                hits -= predicted & (count < 0) & count;
                wrong += select(count < 0, ~predicted & -count, predicted & count);
            }
        }
    }
    run.tally[0] = sum(hits);
    run.tally[1] = sum(wrong);
}

static void tally_context(Run& run, const Work& work, const Context& context) {
    if (run.variant == VALUE) {
        for (int p = 0; p < run.length; p += V)
            run.tally[0] += sum(retrieval_errors(run, work, context, p));
        run.tally[1] += __builtin_popcountll(context.valid);
        return;
    }
    Mask hits = {}, wrong = {};
    for (int q = 0; q < run.length; q++)
        for (int p = 0; p < run.length; p += V) {
            Mask predicted = load(work.joined + q * work.positions + p) > run.threshold[0];
            predicted &= lanes() < run.length - p;
            Mask edge = positive(context, q, p);
            hits -= predicted & edge;
            wrong -= predicted ^ edge;
        }
    run.tally[0] += sum(hits);
    run.tally[1] += sum(wrong);
}

static void evaluate(Run& run, char* scratch, const volatile int32_t* stop) {
    Arena arena{(uintptr_t(scratch) + 63) / 64 * 64};
    Work work(run, arena);
    Evaluation all(run, arena);
    run.tally[0] = run.tally[1] = 0;
    project_items(run, all);
    if (run.counts) return tally_pairs(run, work, all, stop);
    __builtin_memset(work.place, 0, run.items);
    Context context;
    for (int64_t n = 0; n < run.context_count && !*stop; n++) {
        const float* rows[64];
        for (int p = 0; p < work.positions; p++) {
            context.items[p] = run.contexts[n * run.length + (p < run.length ? p : 0)];
            rows[p] = all.projected + (all.slot[context.items[p]] - 1) * run.columns;
        }
        mark(run, context, work.place);
        label(run, context, work.place);
        join<false>(run, work, rows);
        tally_context(run, work, context);
    }
}
