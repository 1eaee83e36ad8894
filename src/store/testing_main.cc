// The test program's own main: some tests run this program again as a child that uses a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "store/testing_store.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--child") {
    return lapidary::store::testing::child({argv + 2, argv + argc});
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
