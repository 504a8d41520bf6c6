// Published values of masters, tensor by tensor.
#include "weight_sync/source.h"

#include "tensor/bytes.h"

namespace weight_sync {

Manifest WeightsSource::manifest() {
  Manifest manifest;
  for (TensorSpec& spec : expected_tensors(weights_, as_)) manifest.tensors.push_back({std::move(spec), 0});
  size_t i = 0;
  each([&](const std::string& name, const Tensor& value) {
    CHECK(manifest.tensors[i].spec.name == name);
    manifest.tensors[i++].checksum = tensor::checksum64(value);
  });
  CHECK(i == manifest.tensors.size());
  return manifest;
}

void WeightsSource::each(const std::function<void(const std::string& name, const Tensor& value)>& see) {
  weights_.visit_named([&](const model::TensorInfo& info, const Tensor& master) {
    CHECK(master.defined(), "{} has no value to publish", info.name);
    const Tensor value = as_ == PublishAs::master ? master.detach() : model::published_value(info, master);
    // An f32 or i64 value may be the parameter itself, which the next optimizer step writes to.
    see(info.name, value.is_alias_of(master) ? value.clone(at::MemoryFormat::Contiguous) : value);
  });
}

}  // namespace weight_sync
