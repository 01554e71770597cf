// The kernels for 64-bit ARM: 4 floats per vector, fused multiply-add, 32 registers.
#include "run.h"
#if HEADCOUNT_NEON
#include <arm_neon.h>
#define HEADCOUNT_LEVEL "neon"
#define HEADCOUNT_WIDTH 4
namespace neon {
#include "kernel.h"
}
#endif
