# How GPU sources are compiled: one place for the build (cmake/gpu.cmake) and for the compile checks of the tests
# (cmake/gpu_check.cmake), so that what is checked is what would be built. Kernels promise one rounding per operation: nothing is
# contracted, no subnormal is flushed, division and roots are rounded correctly.
set(FURLONG_CUDA_FLAGS -std=c++20 -O3 -gencode=arch=compute_90,code=[sm_90,compute_90]
  -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
  -Xcompiler=-Wall,-Wextra,-fPIC -Werror=all-warnings)
# No header and no device library of ROCm: kernels/gpu/hip/dialect.h declares what is called.
set(FURLONG_HIP_FLAGS -x hip -std=c++20 -O3 -nogpuinc -nogpulib -ffp-contract=off -Wall -Wextra -Werror -fPIC)
set(FURLONG_HIP_DEVICE_FLAGS -fno-gpu-flush-denormals-to-zero -fhip-fp32-correctly-rounded-divide-sqrt)
set(FURLONG_HIP_CHIPS gfx942 gfx950)

# furlong_gpu_compiler(cuda|hip OUT): its path, or an empty string; OUT_missing says what to install.
function(furlong_gpu_compiler kind out)
  unset(found)
  if(kind STREQUAL "cuda")
    find_program(found nvcc PATHS /usr/local/cuda/bin NO_CACHE)
    set(${out}_missing "nvcc (the CUDA toolkit, 12.4 or newer)" PARENT_SCOPE)
  else()
    # The first release that knows gfx950 is 20.
    find_program(found NAMES clang++-22 clang++-21 clang++-20 clang++ PATHS /opt/rocm/llvm/bin NO_CACHE
      VALIDATOR furlong_knows_gfx950)
    set(${out}_missing "clang++ 20 or newer (Debian: clang-22 and lld-22; or ROCm 7)" PARENT_SCOPE)
  endif()
  if(NOT found)
    set(found "")
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(furlong_knows_gfx950 ok compiler)
  execute_process(COMMAND "${compiler}" --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "clang version ([0-9]+)" OR CMAKE_MATCH_1 LESS 20)
    set(${ok} FALSE PARENT_SCOPE)
  endif()
endfunction()
