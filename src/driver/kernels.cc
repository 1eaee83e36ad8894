#include "driver/kernels.h"

namespace lapidary::driver {

std::span<const std::byte> kernel_image(std::string_view file, int sm) {
  std::span<const std::byte> found;
  for (const KernelImage& image : kernel_images()) {
    if (image.file != file) continue;
    if (image.sm == 0 && found.empty()) found = image.bytes;
    if (image.sm != 0 && image.sm / 10 == sm / 10 && image.sm <= sm) found = image.bytes;
  }
  return found;
}

}  // namespace lapidary::driver
