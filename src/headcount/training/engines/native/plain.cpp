// The kernels in C++ alone, for compilers without vector types and as a check of the others.
#include "run.h"
#define HEADCOUNT_LEVEL "plain"
#define HEADCOUNT_WIDTH 4
#define HEADCOUNT_PLAIN 1
namespace plain {
#include "kernel.h"
}
