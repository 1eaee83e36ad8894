// 12 x 2 accumulators of 16 floats, two registers of B, and A broadcast from memory: 26 of 32
// registers.
#define LAPIDARY_VECTOR 16
#define LAPIDARY_ROWS 12
#define LAPIDARY_KERNELS kAvx512Kernels
#include "backends/isa_kernels.inc"
