# Debian 12 packages; static libraries where they exist, so that the core is one file.
find_package(Threads REQUIRED)
find_path(FMT_INCLUDE fmt/format.h REQUIRED)
find_path(JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(SQLITE_INCLUDE sqlite3.h REQUIRED)
find_library(SQLITE_LIBRARY NAMES libsqlite3.a sqlite3 REQUIRED)
find_path(CRYPTO_INCLUDE openssl/evp.h REQUIRED)
find_library(CRYPTO_LIBRARY NAMES libcrypto.a crypto REQUIRED)

add_library(lapidary_dependencies INTERFACE)
target_include_directories(lapidary_dependencies SYSTEM INTERFACE
  ${FMT_INCLUDE} ${JSON_INCLUDE} ${XXHASH_INCLUDE} ${SQLITE_INCLUDE} ${CRYPTO_INCLUDE})
target_compile_definitions(lapidary_dependencies INTERFACE FMT_HEADER_ONLY=1 XXH_INLINE_ALL=1)
target_link_libraries(lapidary_dependencies INTERFACE
  ${SQLITE_LIBRARY} ${CRYPTO_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} m)

if(LAPIDARY_TESTS)
  find_package(GTest REQUIRED)
endif()
