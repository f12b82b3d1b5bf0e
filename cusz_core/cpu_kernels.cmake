# cusz_cpu_kernels(target source_dir): the stages of a tile (cpu/kernels_*.cpp of source_dir, sources of the target) for
# every instruction set; chosen at run time (cpu/kernels.cpp). CUSZ_BASELINE_ONLY: for one alone, to build faster.
function(cusz_cpu_kernels target source_dir)
  set(avx2 -mavx2 -mbmi -mbmi2 -mlzcnt)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # what GCC 12's own header of vector functions sets off
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT CUSZ_BASELINE_ONLY)
    target_compile_definitions(${target} PRIVATE CUSZ_HAVE_X86)
    foreach(isa avx2 avx512)
      set_source_files_properties(${source_dir}/cpu/kernels_${isa}.cpp PROPERTIES COMPILE_OPTIONS "${${isa}}")
    endforeach()
  else()
    set_source_files_properties(${source_dir}/cpu/kernels_avx2.cpp ${source_dir}/cpu/kernels_avx512.cpp
                                PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endfunction()
