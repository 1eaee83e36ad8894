# The device code of the driver room (src/driver/kernels/*.ptx) becomes part of its library: the text always, and cubins
# where a ptxas is at hand now. Nobody needs it later: what has no cubin the driver compiles from the text.
#   -DLAPIDARY_PTXAS=FILE, or the environment variable of that name: this ptxas; OFF: none, text alone
#   else what is in PATH, $CUDA_HOME, /usr/local/cuda, or where scripts/setup.sh puts it
if(DEFINED ENV{LAPIDARY_PTXAS} AND (NOT DEFINED LAPIDARY_PTXAS OR LAPIDARY_PTXAS MATCHES "NOTFOUND$"))
  set(LAPIDARY_PTXAS "$ENV{LAPIDARY_PTXAS}" CACHE FILEPATH "ptxas for our device code; OFF for none" FORCE)
endif()
find_program(LAPIDARY_PTXAS ptxas DOC "ptxas for our device code; OFF for none"
  PATHS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin ${CMAKE_SOURCE_DIR}/build/tools)

set(kernels_dir ${CMAKE_BINARY_DIR}/kernels)
set(kernels_flags -Werror -warn-spills)
set(kernels_sms)
if(LAPIDARY_PTXAS)
  # A cubin runs on its own major version. Which of these a ptxas knows depends on its age.
  file(WRITE ${kernels_dir}/probe.ptx
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry probe()\n{\n  ret;\n}\n")
  foreach(sm 80 90 100)
    execute_process(COMMAND ${LAPIDARY_PTXAS} -arch=sm_${sm} ${kernels_flags} -o ${kernels_dir}/probe.cubin
      ${kernels_dir}/probe.ptx RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed STREQUAL "0")
      list(APPEND kernels_sms ${sm})
    endif()
  endforeach()
endif()
if(kernels_sms)
  message(STATUS "Device code: PTX, and cubins for sm ${kernels_sms} by ${LAPIDARY_PTXAS}")
elseif(LAPIDARY_PTXAS)
  message(WARNING "Device code: PTX alone, as ${LAPIDARY_PTXAS} does not assemble it")
else()
  message(STATUS "Device code: PTX alone, as there is no ptxas (LAPIDARY_PTXAS)")
endif()

set(kernels_arguments)
set(kernels_files)
foreach(file device faults)
  set(ptx ${CMAKE_SOURCE_DIR}/src/driver/kernels/${file}.ptx)
  list(APPEND kernels_arguments ${file} 0 ${ptx})
  list(APPEND kernels_files ${ptx})
  foreach(sm ${kernels_sms})
    set(cubin ${kernels_dir}/${file}.sm_${sm}.cubin)
    add_custom_command(OUTPUT ${cubin}
      COMMAND ${LAPIDARY_PTXAS} -arch=sm_${sm} ${kernels_flags} -o ${cubin} ${ptx}
      DEPENDS ${ptx} COMMENT "Assembling ${file}.ptx for sm_${sm}" VERBATIM)
    list(APPEND kernels_arguments ${file} ${sm} ${cubin})
    list(APPEND kernels_files ${cubin})
  endforeach()
endforeach()
add_custom_command(OUTPUT ${kernels_dir}/kernel_images.cc
  COMMAND ${CMAKE_COMMAND} -P ${CMAKE_SOURCE_DIR}/cmake/embed_kernels.cmake ${kernels_dir}/kernel_images.cc ${kernels_arguments}
  DEPENDS ${kernels_files} ${CMAKE_SOURCE_DIR}/cmake/embed_kernels.cmake
  COMMENT "Embedding device code" VERBATIM)
target_sources(lapidary_driver PRIVATE ${kernels_dir}/kernel_images.cc)
