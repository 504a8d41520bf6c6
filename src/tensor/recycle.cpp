// Shelves of tensors by shape, and the scope of a thread.
#include "tensor/recycle.h"

#include <algorithm>

namespace tensor {
namespace {

thread_local Recycler* current = nullptr;

bool unused(const Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

}  // namespace

Tensor Recycler::take(at::IntArrayRef sizes, at::ScalarType dtype) {
  Shape shape;
  CHECK(sizes.size() <= shape.sizes.size(), "{} dims", sizes.size());
  shape.dims = sizes.size();
  shape.dtype = dtype;
  std::copy(sizes.begin(), sizes.end(), shape.sizes.begin());
  // Steps ask for the same shapes in the same order: the shelf after the last one is the likely one.
  const size_t count = shelves_.size();
  size_t at = 0;
  while (at < count && shelves_[(last_shelf_ + at) % count].shape != shape) ++at;
  if (at == count) {
    shelves_.push_back({shape, {}, 0, step_});
    last_shelf_ = count;
  } else {
    last_shelf_ = (last_shelf_ + at) % count;
  }
  Shelf& shelf = shelves_[last_shelf_];
  shelf.last_used = step_;
  for (size_t i = 0; i < shelf.tensors.size(); ++i) {
    const Tensor& tensor = shelf.tensors[(shelf.next + i) % shelf.tensors.size()];
    if (!unused(tensor)) continue;
    shelf.next = (shelf.next + i + 1) % shelf.tensors.size();
    return tensor;
  }
  ++num_allocations_;
  return shelf.tensors.emplace_back(at::empty(sizes, dtype));
}

void Recycler::sweep() {
  std::erase_if(shelves_, [&](const Shelf& shelf) { return shelf.last_used + 1 < step_; });
  last_shelf_ = 0;
  ++step_;
}

int64_t Recycler::size_bytes() const {
  int64_t bytes = 0;
  for (const Shelf& shelf : shelves_) {
    for (const Tensor& tensor : shelf.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
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
