// Two SSE registers wide: every x86-64, and what other processors make of it.
#define LAPIDARY_VECTOR 4
#define LAPIDARY_ROWS 4
#define LAPIDARY_KERNELS kBaseKernels
#include "backends/isa_kernels.inc"
