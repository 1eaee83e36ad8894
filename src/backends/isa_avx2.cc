// 6 x 2 accumulators of 8 floats, two registers of B, one of A: 15 of 16 registers.
#define LAPIDARY_VECTOR 8
#define LAPIDARY_ROWS 6
#define LAPIDARY_KERNELS kAvx2Kernels
#include "backends/isa_kernels.inc"
