# Compiler flags and the compiler cache. Only our own targets get them, through lapidary_flags.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(lapidary_flags INTERFACE)
target_compile_definitions(lapidary_flags INTERFACE LAPIDARY_VERSION="${PROJECT_VERSION}")
target_compile_options(lapidary_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Wimplicit-fallthrough -Wno-missing-field-initializers -fno-fast-math -ffp-contract=off)
# Designated initialisers leave out what has a default: that is their point, not a mistake.
# Contraction would make results depend on the compiler's mood; kernels that want FMA say so.
if(LAPIDARY_WERROR)
  target_compile_options(lapidary_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside its own headers and fmt at -O2 (false positives, GCC PR 105329 and kin).
  target_compile_options(lapidary_flags INTERFACE -Wno-restrict -Wno-stringop-overflow
    -Wno-array-bounds -Wno-maybe-uninitialized -Wno-dangling-pointer)
endif()
if(LAPIDARY_SANITIZE)
  target_compile_options(lapidary_flags INTERFACE -fsanitize=${LAPIDARY_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(lapidary_flags INTERFACE -fsanitize=${LAPIDARY_SANITIZE})
else()
  # One file that needs libc and libm alone (docs/decisions/bundle.md). Sections that nobody uses go: among them is
  # libstdc++'s random_device, which would need glibc 2.36.
  target_link_options(lapidary_flags INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
endif()
if(LAPIDARY_COVERAGE)
  target_compile_options(lapidary_flags INTERFACE --coverage -O0)
  target_link_options(lapidary_flags INTERFACE --coverage)
endif()
if(LAPIDARY_FUZZ)
  target_compile_options(lapidary_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# base_dir and no hash_dir, so that a clone in another folder hits the same cache.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()
