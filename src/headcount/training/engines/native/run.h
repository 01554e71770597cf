// What Python and the kernels share: one run, and the table of a kernel's functions.
#pragma once
#include "compiler.h"

// `sum` is MAX with one head of width D_K, and SUM only where heads share keys.
enum Variant : int32_t { MAX, SOFTMAX, VALUE, LOGSUMEXP, SUM };

// Mirrored field by field in library.py.
struct Run {
    // The task. Rows are padded with zeros to `width`, a multiple of 16.
    const float* rows;       // X: [items][width]
    const float* messages;   // X W_V: [items][width]
    const int32_t* targets;  // of item 0, item 1 …, each item's in order
    const int64_t* starts;   // [items + 1], into `targets`; null where all have `degree` of them
    // The state, in panels of V columns: [columns / V][depth][V]. Column c < D_K belongs to W_Q,
    // D_K + c to W_K. A panel's column block is one vector, so no load or store is strided.
    float* weights;
    float* first;
    float* second;
    float* threshold;     // τ and its moments
    const float* scales;  // [steps][2], from engines/base.py: adam_scales
    // What to evaluate after the steps: [contexts][length], and how often each pair is in them, or
    // null.
    const int32_t* contexts;
    const int32_t* counts;  // [target][source], rows of `stride`; edges negated
    int64_t context_count;
    uint64_t key;      // of the stream of training contexts
    uint64_t chosen;   // ρ·2³²
    int64_t taken;     // steps
    int64_t diverged;  // the first step with a number that is not finite, or 0
    int64_t columns;   // D_K + D_KV, padded to V
    double tally[2];   // what objective.tally counts, summed
    int32_t items, width, depth, heads, key_dim;
    int32_t share;   // heads with one key
    int32_t degree;  // of every item, or 0
    int32_t length, variant, stride;
    float sharpness, temperature;
};

struct Kernel {
    const char* name;
    int width;                    // V
    size_t (*bytes)(const Run&);  // of scratch that a run needs
    void (*train)(Run&, int64_t steps, char* scratch, const volatile int32_t* stop);
    void (*evaluate)(Run&, char* scratch, const volatile int32_t* stop);
    void (*contexts)(const Run&, int64_t steps, char* scratch, int32_t* out);
};

namespace plain { extern const Kernel kernel; }
#if HEADCOUNT_BASELINE
namespace baseline { extern const Kernel kernel; }
#endif
#if HEADCOUNT_NEON
namespace neon { extern const Kernel kernel; }
#endif
#if HEADCOUNT_AVX
namespace avx2 { extern const Kernel kernel; }
namespace avx512 { extern const Kernel kernel; }
#endif
