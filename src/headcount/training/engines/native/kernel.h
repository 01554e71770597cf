// The functions of one level. The level's .cpp file sets the compiler's target, HEADCOUNT_LEVEL and
// HEADCOUNT_WIDTH, then includes this file in a namespace of its own. Nothing here calls the
// standard library: the linker keeps one copy of an inline function, and a copy compiled for
// AVX-512 would crash a machine without it.
#include "vectors.h"
#include "contexts.h"
#include "forward.h"
#include "step.h"
#include "evaluate.h"

static size_t bytes(const Run& run) {
    Arena arena{0};
    Work work(run, arena);
    Evaluation evaluation(run, arena);
    return arena.at + 64;
}

static void prepare_drawing(const Run& run, const Work& work) {
    for (int i = 0; i < run.items; i++) work.entry[i] = i;
    __builtin_memset(work.place, 0, run.items);
}

static void prepare_steps(const Run& run, const Work& work) {
    prepare_drawing(run, work);
    list_pairs(run, work);
    for (int k = 0; k < run.heads && run.share > 1; k++)
        work.key_columns[k * run.key_dim] = key_column(run, k);
}

static void train(Run& run, int64_t steps, char* scratch, const volatile int32_t* stop) {
    Arena arena{(uintptr_t(scratch) + 63) / 64 * 64};
    Work work(run, arena);
    prepare_steps(run, work);
    Context context;
    const int64_t first = run.taken;
    for (int64_t n = 0; n < steps && !*stop; n++) {
        draw(run, first + n, context, work.entry, work.place);
        label(run, context, work.place);
        step(run, work, context, run.scales + 2 * n);
    }
}

// The contexts of the next `steps` steps as `train` draws them: [steps][length].
static void contexts(const Run& run, int64_t steps, char* scratch, int32_t* out) {
    Arena arena{(uintptr_t(scratch) + 63) / 64 * 64};
    Work work(run, arena);
    prepare_drawing(run, work);
    Context context;
    for (int64_t n = 0; n < steps; n++, out += run.length) {
        draw(run, run.taken + n, context, work.entry, work.place);
        unmark(run, context, work.place);
        __builtin_memcpy(out, context.items, sizeof(int32_t) * run.length);
    }
}

extern const Kernel kernel;
const Kernel kernel = {HEADCOUNT_LEVEL, V, bytes, train, evaluate, contexts};
