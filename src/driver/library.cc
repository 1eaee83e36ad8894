#include "driver/library.h"

#include <dlfcn.h>
#include <link.h>

namespace lapidary::driver {

Result<Library> Library::open(const std::string& path, std::initializer_list<const char*> names) {
  std::string why;
  const auto attempt = [&](const char* file) -> void* {
    void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr && why.empty()) why = ::dlerror();
    return handle;
  };
  void* handle = nullptr;
  if (!path.empty()) {
    handle = attempt(path.c_str());
  } else {
    for (const char* file : names) {
      if ((handle = attempt(file)) != nullptr) break;
    }
  }
  if (handle == nullptr) return fail(ErrorCode::unsupported, "{}", why);
  struct link_map* map = nullptr;
  const bool known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  return Library(handle, known ? map->l_name : path);
}

void* Library::address(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace lapidary::driver
