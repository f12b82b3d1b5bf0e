# cusz_cpu_kernels(target source_dir): the stages of a tile (codec/cpu/kernels_*.cpp of source_dir) for every instruction set;
# chosen at run time (codec/cpu/kernels.cpp). CUSZ_INSTRUCTION_SETS: those of them that are built beside the baseline; fewer
# build faster. To be called when the target has all its other sources: of an inline function that is not inlined, as
# without optimisation, the linker keeps the first definition, which must not be one that older processors cannot run.
function(cusz_cpu_kernels target source_dir)
  set(avx2 -mavx2 -mbmi -mbmi2 -mlzcnt)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # what GCC 12's own header of vector functions sets off
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(sets "")
  elseif(DEFINED CUSZ_INSTRUCTION_SETS)
    set(sets ${CUSZ_INSTRUCTION_SETS})
  else()
    set(sets avx2 avx512)
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "/kernels_avx[^/]*$")
  foreach(isa avx2 avx512)
    if(isa IN_LIST sets)
      string(TOUPPER CUSZ_HAVE_${isa} have)
      target_compile_definitions(${target} PRIVATE ${have})
      set_source_files_properties(${source_dir}/codec/cpu/kernels_${isa}.cpp PROPERTIES COMPILE_OPTIONS "${${isa}}")
      list(APPEND sources ${source_dir}/codec/cpu/kernels_${isa}.cpp)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${sources}")
endfunction()
