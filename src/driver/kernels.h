#pragma once

#include <cstddef>
#include <span>
#include <string_view>

// Device code that is part of the program: src/driver/kernels/*.ptx as text and, where a ptxas was
// at hand when we were built, as cubins (cmake/kernels.cmake).
namespace lapidary::driver {

struct KernelImage {
  std::string_view file;             ///< "device" or "faults"
  int sm = 0;                        ///< of the cubin, 90 for sm_90; 0 for PTX text
  std::span<const std::byte> bytes;  ///< with the final NUL of text
};

/// All that is there.
std::span<const KernelImage> kernel_images();

/// What cuModuleLoadData needs on a device of compute capability `sm` (90 for 9.0): a cubin of the
/// same major version and no newer minor one, else the text, which the driver compiles. Empty when
/// there is no file of that name.
std::span<const std::byte> kernel_image(std::string_view file, int sm);

}  // namespace lapidary::driver
