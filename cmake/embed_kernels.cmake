# cmake -P embed_kernels.cmake OUTPUT (NAME SM FILE)...: writes the source of kernel_images() (src/driver/kernels.h) with
# the bytes of each file. SM is 0 for text, which gets a final NUL. A source and not .incbin, so that dependencies and
# compiler caches see the bytes.
set(output ${CMAKE_ARGV3})
set(arrays "")
set(rows "")
set(at 4)
while(at LESS CMAKE_ARGC)
  math(EXPR sm_at "${at} + 1")
  math(EXPR file_at "${at} + 2")
  set(name ${CMAKE_ARGV${at}})
  set(sm ${CMAKE_ARGV${sm_at}})
  file(READ ${CMAKE_ARGV${file_at}} bytes HEX)
  if(sm EQUAL 0)
    string(APPEND bytes "00")
  endif()
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "// ${name}, sm ${sm}\nalignas(64) constexpr unsigned char kImage${at}[] = {\n${bytes}};\n")
  string(APPEND rows "      {\"${name}\", ${sm}, std::as_bytes(std::span(kImage${at}))},\n")
  math(EXPR at "${at} + 3")
endwhile()
file(WRITE ${output} "// Written by cmake/embed_kernels.cmake.
#include \"driver/kernels.h\"

namespace lapidary::driver {
namespace {

${arrays}
}  // namespace

std::span<const KernelImage> kernel_images() {
  static const KernelImage kImages[] = {
${rows}  };
  return kImages;
}

}  // namespace lapidary::driver
")
