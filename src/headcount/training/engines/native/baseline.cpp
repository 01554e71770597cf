#include "run.h"
#define HEADCOUNT_WIDTH 4
namespace baseline {
#include "kernel.h"
}
