# Programs and the suites that cross rooms.
function(lapidary_program name room main)
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/${room}/${main})
    add_executable(${name} src/${room}/${main})
    target_link_libraries(${name} PRIVATE lapidary_${room})
    install(TARGETS ${name} RUNTIME DESTINATION bin)
  endif()
endfunction()
lapidary_program(lapidary cli main.cc)
lapidary_program(lapidary-worker worker main_worker.cc)

if(LAPIDARY_TESTS)
  add_subdirectory(tests)
endif()
