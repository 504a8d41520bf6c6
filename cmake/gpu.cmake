# GPU kernels (src/kernels/gpu): none (references run on the device), cuda (sm_90) or hip (gfx942, gfx950). Included before the modules
# are made; furlong_gpu_checks() after.
set(FURLONG_GPU none CACHE STRING "GPU kernels: none, cuda or hip. cuda and hip need that build of libtorch")
set_property(CACHE FURLONG_GPU PROPERTY STRINGS none cuda hip)
include(cmake/gpu_flags.cmake)
file(GLOB FURLONG_GPU_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/kernels/gpu/*.cu")
list(APPEND FURLONG_PARTS kernels/no_gpu)  # a folder of LAYERS whose sources another module compiles

# An object of each source, by the compiler of FURLONG_GPU.
function(furlong_gpu_objects out)
  furlong_gpu_compiler(${FURLONG_GPU} compiler)
  if(compiler STREQUAL "")
    message(FATAL_ERROR "FURLONG_GPU=${FURLONG_GPU} needs ${compiler_missing}")
  endif()
  set(flags ${FURLONG_CUDA_FLAGS})
  if(FURLONG_GPU STREQUAL "hip")
    list(TRANSFORM FURLONG_HIP_CHIPS PREPEND "--offload-arch=" OUTPUT_VARIABLE chips)
    set(flags ${FURLONG_HIP_FLAGS} ${FURLONG_HIP_DEVICE_FLAGS} ${chips})
  endif()
  set(objects "")
  foreach(source IN LISTS FURLONG_GPU_SOURCES)
    get_filename_component(name "${source}" NAME_WE)
    set(object "${CMAKE_BINARY_DIR}/gpu/${name}.o")
    add_custom_command(OUTPUT "${object}" DEPENDS "${source}" DEPFILE "${object}.d" COMMAND_EXPAND_LISTS VERBATIM
      COMMAND "${compiler}" ${flags} "-I${CMAKE_SOURCE_DIR}/src" "-I${CMAKE_SOURCE_DIR}/src/kernels/gpu/${FURLONG_GPU}"
        -MD -MF "${object}.d" -c "${source}" -o "${object}"
      COMMENT "Compiling ${name}.cu for ${FURLONG_GPU}")
    list(APPEND objects "${object}")
  endforeach()
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/gpu")
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

if(FURLONG_GPU STREQUAL "none")
  file(GLOB FURLONG_SOURCES_kernels_gpu CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/kernels/no_gpu/*.cpp")
elseif(FURLONG_GPU STREQUAL "cuda")
  find_package(CUDAToolkit REQUIRED)
  set(FURLONG_LIBS_kernels_gpu CUDA::cudart)
  furlong_gpu_objects(FURLONG_SOURCES_kernels_gpu)
elseif(FURLONG_GPU STREQUAL "hip")
  find_library(FURLONG_HIP_RUNTIME amdhip64 PATHS /opt/rocm/lib REQUIRED)
  set(FURLONG_LIBS_kernels_gpu "${FURLONG_HIP_RUNTIME}")
  furlong_gpu_objects(FURLONG_SOURCES_kernels_gpu)
else()
  message(FATAL_ERROR "FURLONG_GPU is '${FURLONG_GPU}'; write none, cuda or hip")
endif()

# Tests that run the sources on emulated lanes (compiled as C++, they come before kernels/no_gpu), and one that compiles each of them
# for each chip.
function(furlong_gpu_checks)
  set_source_files_properties(${FURLONG_GPU_SOURCES} PROPERTIES LANGUAGE CXX)
  add_library(furlong_emulated_gpu OBJECT ${FURLONG_GPU_SOURCES})
  target_include_directories(furlong_emulated_gpu PUBLIC
    "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/tests/kernels/gpu/emulated")
  if(FURLONG_TORCH)
    furlong_test_folder(gpu_ops TORCH DEPS furlong_kernels)
  endif()
  foreach(test kernels_gpu_test gpu_ops_test)
    if(TARGET ${test})
      target_link_libraries(${test} PRIVATE furlong_emulated_gpu)
    endif()
  endforeach()
  if(FURLONG_SANITIZE)
    return()  # the other build folder compiles them
  endif()
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/gpu_check")
  foreach(source IN LISTS FURLONG_GPU_SOURCES)
    get_filename_component(name "${source}" NAME_WE)
    file(RELATIVE_PATH path "${CMAKE_SOURCE_DIR}" "${source}")
    foreach(chip sm_90 ${FURLONG_HIP_CHIPS})
      set(test gpu.compiles.${name}.for.${chip})
      add_test(NAME ${test} COMMAND "${CMAKE_COMMAND}" "-DROOT=${CMAKE_SOURCE_DIR}" "-DSOURCE=${path}" "-DCHIP=${chip}"
        "-DOUT=${CMAKE_BINARY_DIR}/gpu_check/${name}.${chip}" -P "${CMAKE_SOURCE_DIR}/cmake/gpu_check.cmake")
      set_tests_properties(${test} PROPERTIES LABELS gpu TIMEOUT 300 SKIP_REGULAR_EXPRESSION "skipped: ")
    endforeach()
  endforeach()
endfunction()
