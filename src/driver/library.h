#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "support/result.h"

namespace lapidary::driver {

/// A shared library that is found at run time, never linked: the same binary starts without it.
class Library {
 public:
  /// Tries `path` alone when given, else each of `names` through the loader.
  static Result<Library> open(const std::string& path, std::initializer_list<const char*> names);

  /// The same for a library of NVIDIA's: `path` alone when given; else one that this process has
  /// loaded already; else each of `names` in each of `folders`; else through the loader.
  static Result<Library> open_vendor(const std::string& path,
                                     std::initializer_list<const char*> names,
                                     const std::vector<std::filesystem::path>& folders);

  /// The function of that name and type, or null.
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }
  /// Where the loader found it.
  const std::string& path() const { return path_; }

 private:
  Library(void* handle, std::string path);
  void* address(const char* symbol) const;
  void* handle_;  // never closed: such libraries leave threads behind that run their code
  std::string path_;
};

}  // namespace lapidary::driver
