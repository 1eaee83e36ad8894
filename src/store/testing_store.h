#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "store/store.h"
#include "support/files.h"

namespace lapidary::store::testing {

/// A fresh folder, or the end of the test program.
TempFolder temp_folder();

/// Entry number i: a key and a value that say so, of realistic length.
Entry entry(int i, std::int64_t created_s = 1'700'000'000, std::string_view value = "");

/// The log's lines of a scope.
class Warnings {
 public:
  Warnings();
  ~Warnings();
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  const std::vector<std::string>& lines() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Opens for a test: an error is a failure, and there is no falling back.
std::unique_ptr<Store> open(const std::filesystem::path& path,
                            const OpenOptions& options = {.fall_back = false});

/// Every entry of a store.
std::vector<Entry> all(Store& store);

/// Runs statements on a file with SQLite itself.
void sql(const std::filesystem::path& path, const std::string& statements);

/// What this program does when its first argument is --child: testing_child.cc.
int child(const std::vector<std::string>& arguments);

/// Command line that runs this program as a child with these arguments.
std::vector<std::string> child_command(std::vector<std::string> arguments);

}  // namespace lapidary::store::testing
