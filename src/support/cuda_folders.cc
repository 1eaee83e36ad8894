#include "support/cuda_folders.h"

#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "support/env.h"
#include "support/text.h"

namespace lapidary {
namespace {

namespace fs = std::filesystem;

/// Adds the packages' folders below a lib folder of Python ("/usr/lib").
void add_sites(const fs::path& lib, std::vector<fs::path>& sites) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(lib, ignored)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    found.push_back(entry.path() / "site-packages");
    found.push_back(entry.path() / "dist-packages");
  }
  // The newest Python first: python3.13 before python3.9.
  std::ranges::sort(found, [](const fs::path& x, const fs::path& y) {
    return ::strverscmp(x.c_str(), y.c_str()) > 0;
  });
  sites.insert(sites.end(), found.begin(), found.end());
}

std::vector<fs::path> python_sites() {
  std::vector<fs::path> sites;
  if (const auto environment = system_env("VIRTUAL_ENV"))
    add_sites(fs::path(*environment) / "lib", sites);
  const std::string path = system_env("PATH").value_or("");
  std::error_code ignored;
  for (const std::string_view folder : split(path, ':')) {
    // Of a virtual environment the link itself counts, not the system's Python that it leads to.
    const fs::path bin(folder);
    if (!fs::exists(bin / "python3", ignored)) continue;
    add_sites(bin.parent_path() / "lib", sites);
    break;
  }
  if (const auto home = system_env("HOME")) add_sites(fs::path(*home) / ".local/lib", sites);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"}) add_sites(lib, sites);
  return sites;
}

/// Folders in the order in which they are asked for, without those that are not there.
class Folders {
 public:
  void add_toolkits(const char* below) {
    if (const auto home = system_env("CUDA_HOME")) add(fs::path(*home) / below);
    add(fs::path("/usr/local/cuda") / below);
  }
  void add_packages(std::initializer_list<const char*> below) {
    for (const fs::path& site : python_sites()) {
      for (const char* folder : below) add(site / folder);
    }
  }
  std::vector<fs::path> take() { return std::move(folders_); }

 private:
  void add(fs::path folder) {
    std::error_code ignored;
    if (fs::is_directory(folder, ignored) && std::ranges::find(folders_, folder) == folders_.end())
      folders_.push_back(std::move(folder));
  }
  std::vector<fs::path> folders_;
};

}  // namespace

// NVIDIA's packages share a folder since CUDA 13; before, each had its own.

std::vector<fs::path> cuda_library_folders() {
  Folders folders;
  folders.add_packages({"nvidia/cu13/lib", "nvidia/cublas/lib"});
  folders.add_toolkits("lib64");
  return folders.take();
}

std::vector<fs::path> cuda_program_folders() {
  Folders folders;
  folders.add_toolkits("bin");
  folders.add_packages({"nvidia/cu13/bin", "nvidia/cuda_nvcc/bin"});
  folders.add_packages({"triton/backends/nvidia/bin"});
  return folders.take();
}

}  // namespace lapidary
