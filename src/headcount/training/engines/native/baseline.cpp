// The kernels in vectors of 4 floats that every processor of its kind has (SSE2 on x86-64).
#include "run.h"
#if HEADCOUNT_BASELINE
#define HEADCOUNT_LEVEL "baseline"
#define HEADCOUNT_WIDTH 4
namespace baseline {
#include "kernel.h"
}
#endif
