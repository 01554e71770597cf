// The functions of one level. A .cpp file of the level sets the compiler's target and HEADCOUNT_WIDTH, then includes
// this in a namespace of its own. Nothing here calls the standard library: a function compiled for AVX-512 must not
// stand in for its namesake on a lesser machine.
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

// `steps` steps, or only the contexts of those steps.
template <bool stepping>
static void train(Run& run, int64_t steps, char* scratch, const volatile int32_t* stop) {
    Arena arena{(uintptr_t(scratch) + 63) / 64 * 64};
    Work work(run, arena);
    for (int i = 0; i < run.items; i++) work.entry[i] = i;
    __builtin_memset(work.place, 0, run.items);
    list_pairs(run, work);
    Context context;
    const int64_t first = run.taken;
    for (int64_t n = 0; n < steps && !*stop; n++) {
        draw(run, first + n, context, work.entry, work.place);
        label(run, context, work.place);
        if (stepping) step(run, work, context, run.scales + 2 * n);
    }
}

extern const Kernel kernel;
const Kernel kernel = {V, bytes, train<true>, train<false>, evaluate};
