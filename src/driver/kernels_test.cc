#include "driver/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace lapidary::driver {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::map<std::string_view, std::vector<std::string>> kKernels = {
    {"device", {"lapidary_empty", "lapidary_fill", "lapidary_garbage", "lapidary_hash"}},
    {"faults", {"lapidary_spin", "lapidary_store", "lapidary_assert", "lapidary_trap"}},
};

std::string characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const KernelImage* image_of(std::string_view file, int sm) {
  for (const KernelImage& image : kernel_images()) {
    if (image.file == file && image.sm == sm) return &image;
  }
  return nullptr;
}

std::vector<int> cubins_of(std::string_view file) {
  std::vector<int> sms;
  for (const KernelImage& image : kernel_images()) {
    if (image.file == file && image.sm != 0) sms.push_back(image.sm);
  }
  return sms;
}

TEST(Kernels, TheTextOfEachFileHasItsKernelsAndEndsInANul) {
  for (const auto& [file, kernels] : kKernels) {
    SCOPED_TRACE(file);
    const KernelImage* image = image_of(file, 0);
    ASSERT_NE(image, nullptr);
    ASSERT_FALSE(image->bytes.empty());
    const std::string text = characters(image->bytes);
    EXPECT_EQ(std::strlen(text.c_str()), image->bytes.size() - 1) << "one NUL, at the end";
    EXPECT_THAT(text, EndsWith(std::string("}\n\0", 3)));
    EXPECT_THAT(text, HasSubstr("\n.target sm_70\n"));
    for (const std::string& kernel : kernels)
      EXPECT_THAT(text, HasSubstr(".entry " + kernel + "("));
  }
}

TEST(Kernels, ACubinIsAnElfFileWithTheKernels) {
  ASSERT_EQ(cubins_of("device"), cubins_of("faults"));
  if (cubins_of("device").empty()) GTEST_SKIP() << "built without ptxas";
  for (const auto& [file, kernels] : kKernels) {
    for (const int sm : cubins_of(file)) {
      SCOPED_TRACE(std::string(file) + " for sm_" + std::to_string(sm));
      const std::string cubin = characters(image_of(file, sm)->bytes);
      EXPECT_THAT(cubin, StartsWith("\x7f"
                                    "ELF"));
      for (const std::string& kernel : kernels) EXPECT_THAT(cubin, HasSubstr(".text." + kernel));
    }
  }
}

TEST(Kernels, ADeviceGetsTheCubinOfItsMajorVersionOrTheText) {
  struct Case {
    const char* why;
    int sm, of;
  };
  constexpr Case kCases[] = {{"older than any cubin", 75, 0},  {"the same", 80, 80},
                             {"a newer minor one", 89, 80},    {"Hopper", 90, 90},
                             {"Blackwell", 100, 100},          {"its successor", 103, 100},
                             {"GeForce of that time", 120, 0}, {"newer than any cubin", 210, 0}};
  for (const auto& [file, kernels] : kKernels) {
    for (const auto& [why, sm, of] : kCases) {
      SCOPED_TRACE(std::string(file) + ", " + why);
      // Without a ptxas that knows an architecture its devices get the text.
      const KernelImage* expected = image_of(file, of);
      if (expected == nullptr) expected = image_of(file, 0);
      ASSERT_NE(expected, nullptr);
      EXPECT_EQ(kernel_image(file, sm).data(), expected->bytes.data());
      EXPECT_EQ(kernel_image(file, sm).size(), expected->bytes.size());
    }
  }
}

TEST(Kernels, AFileThatIsNotThereIsEmpty) { EXPECT_TRUE(kernel_image("nothing", 90).empty()); }

TEST(Kernels, ImagesAreAligned) {
  for (const KernelImage& image : kernel_images())
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(image.bytes.data()) % 64, 0u) << image.file;
}

}  // namespace
}  // namespace lapidary::driver
