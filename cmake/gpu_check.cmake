# Compiles one GPU source for one chip, as a test: cmake -DROOT= -DSOURCE= -DCHIP= -DOUT= -P cmake/gpu_check.cmake
# Without the compiler it says so, which ctest reports as skipped. Nothing is run: that takes the chip.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/gpu_flags.cmake")

set(kind hip)
if(CHIP MATCHES "^sm_")
  set(kind cuda)
endif()
furlong_gpu_compiler(${kind} compiler)
if(compiler STREQUAL "")
  message("skipped: ${SOURCE} is not compiled for ${CHIP}: there is no ${compiler_missing}")
  return()
endif()

set(paths "-I${ROOT}/src" "-I${ROOT}/src/kernels/gpu/${kind}")
if(kind STREQUAL "cuda")
  set(command "${compiler}" ${FURLONG_CUDA_FLAGS} ${paths} -c "${ROOT}/${SOURCE}" -o "${OUT}.o")
  execute_process(COMMAND ${command} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
else()
  # Both halves of what a build makes, without the tool that bundles them (it is in another package).
  set(common "${compiler}" ${FURLONG_HIP_FLAGS} ${paths} "${ROOT}/${SOURCE}")
  execute_process(COMMAND ${common} ${FURLONG_HIP_DEVICE_FLAGS} --offload-arch=${CHIP} --cuda-device-only --no-gpu-bundle-output -o "${OUT}.hsaco"
    COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${common} --cuda-host-only -c -o "${OUT}.o" COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endif()
