# libtorch, as the PyPI package torch ships it, in the virtual environment that ./dev setup makes. The libraries are named one by
# one: this works for the CPU and the GPU build of the package, without a CUDA or ROCm toolkit on the machine.
set(FURLONG_VENV "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "virtual environment with the torch package")
file(GLOB _torch_dirs "${FURLONG_VENV}/lib/python3*/site-packages/torch")
list(LENGTH _torch_dirs _num_torch_dirs)
if(NOT _num_torch_dirs EQUAL 1)
  message(FATAL_ERROR "no torch package under ${FURLONG_VENV}: run ./dev setup")
endif()
set(TORCH_DIR "${_torch_dirs}")
# torch ships headers of another fmt, without its library: the system's must be found first, or nothing that formats would link.
get_target_property(_fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/fmt_first")
file(CREATE_LINK "${_fmt_include}/fmt" "${CMAKE_BINARY_DIR}/fmt_first/fmt" SYMBOLIC)
add_library(furlong_torch INTERFACE)
target_include_directories(furlong_torch SYSTEM INTERFACE
  "${CMAKE_BINARY_DIR}/fmt_first"
  "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include")
target_link_directories(furlong_torch INTERFACE "${TORCH_DIR}/lib")
target_link_options(furlong_torch INTERFACE "-Wl,-rpath,${TORCH_DIR}/lib")
target_link_libraries(furlong_torch INTERFACE torch torch_cpu c10)
