# Programs, the library as users link it, and the suites that cross rooms.
include(GNUInstallDirs)

add_executable(lapidary src/cli/main.cc)
target_link_libraries(lapidary PRIVATE lapidary_cli)
add_executable(lapidary-worker src/worker/main_worker.cc)
target_link_libraries(lapidary-worker PRIVATE lapidary_worker)

# One archive of all rooms but the command line: what find_package(Lapidary) gives.
get_property(rooms GLOBAL PROPERTY LAPIDARY_ROOMS)
list(REMOVE_ITEM rooms lapidary_cli)
set(objects)
foreach(room ${rooms})
  list(APPEND objects $<TARGET_OBJECTS:${room}>)
endforeach()
add_library(lapidary_library STATIC EXCLUDE_FROM_ALL ${objects})
set_target_properties(lapidary_library PROPERTIES OUTPUT_NAME lapidary EXPORT_NAME library LINKER_LANGUAGE CXX)

install(TARGETS lapidary lapidary-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES $<TARGET_FILE:lapidary_library> DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/lapidary DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY suites DESTINATION ${CMAKE_INSTALL_DATADIR}/lapidary)
configure_file(cmake/LapidaryConfig.cmake.in LapidaryConfig.cmake @ONLY)
configure_file(cmake/lapidary.pc.in lapidary.pc @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(LapidaryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/LapidaryConfig.cmake ${CMAKE_BINARY_DIR}/LapidaryConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Lapidary)
install(FILES ${CMAKE_BINARY_DIR}/lapidary.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(LAPIDARY_TESTS)
  add_subdirectory(tests)
  if(LAPIDARY_SANITIZE MATCHES "address")  # see tests/CMakeLists.txt
    set_tests_properties(backends_test PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endif()

# Benchmarks with Google Benchmark, where it is there; built when asked for.
find_package(benchmark QUIET)
if(benchmark_FOUND)
  add_executable(assembler_bench EXCLUDE_FROM_ALL bench/assembler_bench.cc)
  target_link_libraries(assembler_bench PRIVATE lapidary_assembler benchmark::benchmark)
  target_compile_definitions(assembler_bench PRIVATE LAPIDARY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endif()
