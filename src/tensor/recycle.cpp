// Shelves of tensors by size class, and the scope of a thread.
#include "tensor/recycle.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tensor {
namespace {

thread_local Recycler* current = nullptr;

bool unused(const Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

}  // namespace

int64_t Recycler::size_class(int64_t count) {
  if (count <= 16) return 16;
  const auto top = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count)));
  const int64_t quarter = top / 4;
  return top + (count - top + quarter - 1) / quarter * quarter;
}

Recycler::Shelf& Recycler::shelf_of(int64_t room, at::ScalarType dtype) {
  const auto at = std::find_if(shelves_.begin(), shelves_.end(),
                               [&](const Shelf& shelf) { return shelf.room == room && shelf.dtype == dtype; });
  return at != shelves_.end() ? *at : shelves_.emplace_back(Shelf{room, dtype, {}, 0, step_});
}

Tensor Recycler::take(at::IntArrayRef sizes, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  Shelf& shelf = shelf_of(size_class(count), dtype);
  shelf.last_used = step_;
  for (size_t i = 0; i < shelf.tensors.size(); ++i) {
    const Tensor& tensor = shelf.tensors[(shelf.next + i) % shelf.tensors.size()];
    if (!unused(tensor)) continue;
    shelf.next = (shelf.next + i + 1) % shelf.tensors.size();
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    return tensor;
  }
  ++num_allocations_;
  const Tensor& tensor = shelf.tensors.emplace_back(at::empty({shelf.room}, dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

void Recycler::sweep() {
  std::erase_if(shelves_, [&](const Shelf& shelf) { return shelf.last_used + kKeptSteps <= step_; });
  ++step_;
}

int64_t Recycler::size_bytes() const {
  int64_t bytes = 0;
  for (const Shelf& shelf : shelves_) {
    for (const Tensor& tensor : shelf.tensors) bytes += static_cast<int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

RecycleScope::RecycleScope(Recycler& recycler) : before_(std::exchange(current, &recycler)) {}

RecycleScope::~RecycleScope() { current = before_; }

Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  if (current == nullptr || at::GradMode::is_enabled()) return at::empty(sizes, dtype);
  return current->take(sizes, dtype);
}

}  // namespace tensor
