#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Our own declarations of what we use of oneapi/dnnl/dnnl_types.h, version 2.6; onednn_test.cc
// holds them against the header where there is one. Descriptors are filled and read by the library
// alone, so only their sizes matter.
namespace lapidary::backends::onednn_api {

struct MemoryDesc {
  alignas(8) std::array<char, 696> bytes;
};
struct MatmulDesc {
  alignas(8) std::array<char, 2800> bytes;
};
struct ExecArg {
  int arg;
  void* memory;
};
struct Version {
  int major, minor, patch;
};
using Handle = void*;
using Dims = std::int64_t[12];
inline constexpr int kSuccess = 0, kF16 = 1, kBf16 = 2, kF32 = 3, kCpu = 1, kFormatAny = 1,
                     kScratchpadUser = 1, kInOrder = 1;
inline constexpr int kSrc = 1, kDst = 17, kWeights = 33, kScratchpad = 80, kPostOp = 16384,
                     kPostOpOperand = 2;
inline constexpr int kQueryWeights = 131, kQueryScratchpad = 136;
enum Alg : int {
  kRelu = 31,
  kTanh = 47,
  kGeluErf = 48,
  kAbs = 95,
  kSqrt = 111,
  kLinear = 127,
  kSoftRelu = 159,
  kLogistic = 175,
  kExp = 191,
  kGeluTanh = 207,
  kSwish = 223,
  kClip = 255,
  kBinaryAdd = 131056,
  kBinaryMul = 131057,
  kBinaryMax = 131058,
  kBinaryMin = 131059,
  kBinaryDiv = 131060,
  kBinarySub = 131061,
};

/// Every entry point that we call: name and type.
#define LAPIDARY_ONEDNN_FUNCTIONS(X)                                                           \
  X(engine_create, int(Handle*, int kind, std::size_t index))                                  \
  X(stream_create, int(Handle*, Handle engine, unsigned flags))                                \
  X(stream_wait, int(Handle))                                                                  \
  X(stream_destroy, int(Handle))                                                               \
  X(memory_desc_init_by_strides, int(MemoryDesc*, int, const Dims, int type, const Dims))      \
  X(memory_desc_init_by_tag, int(MemoryDesc*, int, const Dims, int type, int tag))             \
  X(memory_desc_get_size, std::size_t(const MemoryDesc*))                                      \
  X(memory_desc_equal, int(const MemoryDesc*, const MemoryDesc*))                              \
  X(matmul_desc_init, int(MatmulDesc*, const MemoryDesc* src, const MemoryDesc* weights,       \
                          const MemoryDesc* bias, const MemoryDesc* dst))                      \
  X(primitive_attr_create, int(Handle*))                                                       \
  X(primitive_attr_destroy, int(Handle))                                                       \
  X(primitive_attr_set_scratchpad_mode, int(Handle, int))                                      \
  X(primitive_attr_set_post_ops, int(Handle, Handle))                                          \
  X(post_ops_create, int(Handle*))                                                             \
  X(post_ops_destroy, int(Handle))                                                             \
  X(post_ops_append_eltwise, int(Handle, float scale, int alg, float alpha, float beta))       \
  X(post_ops_append_binary, int(Handle, int alg, const MemoryDesc*))                           \
  X(primitive_desc_create, int(Handle*, const void* desc, Handle attr, Handle engine, Handle)) \
  X(primitive_desc_destroy, int(Handle))                                                       \
  X(primitive_desc_query_md, const MemoryDesc*(Handle, int what, int index))                   \
  X(reorder_primitive_desc_create,                                                             \
    int(Handle*, const MemoryDesc*, Handle, const MemoryDesc*, Handle, Handle attr))           \
  X(primitive_create, int(Handle*, Handle))                                                    \
  X(primitive_destroy, int(Handle))                                                            \
  X(primitive_execute, int(Handle, Handle stream, int count, const ExecArg*))                  \
  X(memory_create, int(Handle*, const MemoryDesc*, Handle engine, void* data))                 \
  X(memory_destroy, int(Handle))                                                               \
  X(version, const Version*())

}  // namespace lapidary::backends::onednn_api
