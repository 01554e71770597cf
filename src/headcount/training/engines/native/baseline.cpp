// The kernels for any machine: 4 floats per vector (SSE2 on x86-64, NEON on ARM).
#include "run.h"
#define HEADCOUNT_WIDTH 4
namespace baseline {
#include "kernel.h"
}
