#pragma once

#include <string>

#include "support/result.h"

namespace lapidary::driver {

/// A shared library that is found at run time, never linked: the same binary starts without it.
class Library {
 public:
  /// Tries `path` alone when given, else each of `names` through the loader.
  static Result<Library> open(const std::string& path, std::initializer_list<const char*> names);

  /// The function of that name and type, or null.
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }
  /// Where the loader found it.
  const std::string& path() const { return path_; }

 private:
  Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* address(const char* symbol) const;
  void* handle_;  // never closed: such libraries leave threads behind that run their code
  std::string path_;
};

}  // namespace lapidary::driver
