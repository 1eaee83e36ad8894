#include "driver/library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include <algorithm>

#include "support/env.h"
#include "support/text.h"

namespace lapidary::driver {
namespace {

namespace fs = std::filesystem;

/// Opens one file; keeps the loader's first complaint.
void* attempt(const std::string& file, int flags, std::string& why) {
  void* handle = ::dlopen(file.c_str(), flags | RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  // A library that is merely not loaded yet (RTLD_NOLOAD) is no error to the loader.
  if (const char* error = ::dlerror(); error != nullptr && why.empty()) why = error;
  return nullptr;
}

/// Adds the folders below a lib folder of Python ("/usr/lib") that NVIDIA's packages install
/// libraries into.
void add_packages(const fs::path& lib, std::vector<fs::path>& folders) {
  std::error_code ignored;
  std::vector<fs::path> sites;
  for (const fs::directory_entry& entry : fs::directory_iterator(lib, ignored)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    sites.push_back(entry.path() / "site-packages");
    sites.push_back(entry.path() / "dist-packages");
  }
  // The newest Python first: python3.13 before python3.9.
  std::ranges::sort(sites, [](const fs::path& x, const fs::path& y) {
    return ::strverscmp(x.c_str(), y.c_str()) > 0;
  });
  for (const fs::path& site : sites) {
    // Since CUDA 13 one folder for all; before, one for each library.
    for (const char* below : {"nvidia/cu13/lib", "nvidia/cublas/lib"}) {
      if (fs::is_directory(site / below, ignored)) folders.push_back(site / below);
    }
  }
}

}  // namespace

Library::Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {
  struct link_map* map = nullptr;
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && *map->l_name != '\0')
    path_ = map->l_name;
}

Result<Library> Library::open(const std::string& path, std::initializer_list<const char*> names) {
  return open_vendor(path, names, {});
}

Result<Library> Library::open_vendor(const std::string& path,
                                     std::initializer_list<const char*> names,
                                     const std::vector<fs::path>& folders) {
  std::string why;
  if (!path.empty()) {
    if (void* handle = attempt(path, 0, why)) return Library(handle, path);
    return fail(ErrorCode::unsupported, "{}", why);
  }
  std::string not_loaded;
  for (const char* name : names) {
    if (void* handle = attempt(name, RTLD_NOLOAD, not_loaded)) return Library(handle, name);
  }
  for (const fs::path& folder : folders) {
    for (const char* name : names) {
      std::error_code ignored;
      if (!fs::exists(folder / name, ignored)) continue;
      if (void* handle = attempt((folder / name).string(), 0, why)) return Library(handle, name);
    }
  }
  for (const char* name : names) {
    if (void* handle = attempt(name, 0, why)) return Library(handle, name);
  }
  return fail(ErrorCode::unsupported, "{}", why);
}

void* Library::address(const char* symbol) const { return ::dlsym(handle_, symbol); }

std::vector<fs::path> cuda_library_folders() {
  std::vector<fs::path> folders;
  if (const auto environment = system_env("VIRTUAL_ENV"))
    add_packages(fs::path(*environment) / "lib", folders);
  const std::string path = system_env("PATH").value_or("");
  std::error_code ignored;
  for (const std::string_view folder : split(path, ':')) {
    // Of a virtual environment the link itself counts, not the system's Python that it leads to.
    const fs::path bin(folder);
    if (!fs::exists(bin / "python3", ignored)) continue;
    add_packages(bin.parent_path() / "lib", folders);
    break;
  }
  if (const auto home = system_env("HOME")) add_packages(fs::path(*home) / ".local/lib", folders);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"}) add_packages(lib, folders);
  for (const fs::path& home :
       {fs::path(system_env("CUDA_HOME").value_or("")), fs::path("/usr/local/cuda")}) {
    if (!home.empty() && fs::is_directory(home / "lib64", ignored))
      folders.push_back(home / "lib64");
  }
  std::vector<fs::path> unique;
  for (fs::path& folder : folders) {
    if (std::ranges::find(unique, folder) == unique.end()) unique.push_back(std::move(folder));
  }
  return unique;
}

}  // namespace lapidary::driver
