#include "driver/library.h"

#include <dlfcn.h>
#include <link.h>

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

}  // namespace lapidary::driver
