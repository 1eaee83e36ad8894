#include "support/cuda_folders.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "support/files.h"

namespace lapidary {
namespace {

namespace fs = std::filesystem;

/// A machine of its own, but for its own /usr.
class CudaFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_) << folder_.error();
    for (const auto& [name, value] :
         {std::pair("VIRTUAL_ENV", "venv"), std::pair("PATH", "python/bin"),
          std::pair("HOME", "home"), std::pair("CUDA_HOME", "cuda")}) {
      const char* before = std::getenv(name);
      before_.emplace_back(name,
                           before != nullptr ? std::optional<std::string>(before) : std::nullopt);
      ::setenv(name, (folder_->path() / value).c_str(), 1);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_)
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  void make(const char* folder) const { fs::create_directories(folder_->path() / folder); }
  /// Those that are this test's, from its folder on.
  std::vector<std::string> mine(const std::vector<fs::path>& folders) const {
    std::vector<std::string> names;
    for (const fs::path& folder : folders) {
      const fs::path relative = folder.lexically_relative(folder_->path());
      if (!relative.string().starts_with("..")) names.push_back(relative);
    }
    return names;
  }
  Result<TempFolder> folder_ = TempFolder::make();
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST_F(CudaFolders, StandInTheirOrder) {
  for (const char* folder : {
           "cuda/lib64",
           "cuda/bin",
           "home/.local/lib/python3.11/site-packages/nvidia/cu13/lib",
           "python/bin/python3",
           "python/lib/python3.9/site-packages/nvidia/cu13/bin",
           "python/lib/python3.9/site-packages/triton/backends/nvidia/bin",
           "python/lib/python3.13/site-packages/nvidia/cublas/lib",
           "python/lib/python3.13/dist-packages/nvidia/cuda_nvcc/bin",
           "python/lib/python2.7/site-packages/nvidia/cu13/bin",
           "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
           "venv/lib/python3.12/site-packages/nvidia/cublas/lib",
       })
    make(folder);
  EXPECT_EQ(mine(cuda_library_folders()),
            (std::vector<std::string>{
                "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
                "venv/lib/python3.12/site-packages/nvidia/cublas/lib",
                "python/lib/python3.13/site-packages/nvidia/cublas/lib",
                "home/.local/lib/python3.11/site-packages/nvidia/cu13/lib",
                "cuda/lib64",
            }));
  EXPECT_EQ(mine(cuda_program_folders()),
            (std::vector<std::string>{
                "cuda/bin",
                "python/lib/python3.13/dist-packages/nvidia/cuda_nvcc/bin",
                "python/lib/python3.9/site-packages/nvidia/cu13/bin",
                "python/lib/python3.9/site-packages/triton/backends/nvidia/bin",
            }));
}

TEST_F(CudaFolders, EachComesOnce) {
  ::setenv("VIRTUAL_ENV", (folder_->path() / "python").c_str(), 1);
  make("python/bin/python3");
  make("python/lib/python3.9/site-packages/nvidia/cu13/bin");
  EXPECT_EQ(mine(cuda_program_folders()).size(), 1u);
}

TEST_F(CudaFolders, WithoutAnythingThereIsNone) {
  EXPECT_TRUE(mine(cuda_library_folders()).empty());
  EXPECT_TRUE(mine(cuda_program_folders()).empty());
}

}  // namespace
}  // namespace lapidary
