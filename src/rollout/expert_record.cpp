// Copies between the choices of a pass and the records of sequences.
#include "rollout/expert_record.h"

#include <algorithm>

namespace rollout {

void record_experts(const model::Choices& choices, const model::Span& span, std::vector<uint16_t>& experts) {
  const auto layers = static_cast<int64_t>(choices.experts_TA.size());
  CHECK(layers > 0);
  const int64_t per_token = choices.experts_TA[0].size(1), per_position = layers * per_token;
  experts.resize(static_cast<size_t>((span.start + span.count) * per_position));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const tensor::Tensor chosen_TA = choices.experts_TA[static_cast<size_t>(layer)].to(at::kCPU);
    const int32_t* chosen = chosen_TA.const_data_ptr<int32_t>() + span.first * per_token;
    for (int64_t i = 0; i < span.count; ++i) {
      uint16_t* out = experts.data() + (span.start + i) * per_position + layer * per_token;
      std::transform(chosen + i * per_token, chosen + (i + 1) * per_token, out,
                     [](int32_t expert) { return static_cast<uint16_t>(expert); });
    }
  }
}

void share_experts(const std::vector<uint16_t>& from, int64_t positions, int64_t per_position,
                   std::vector<uint16_t>& to) {
  const auto count = static_cast<size_t>(positions * per_position);
  CHECK(from.size() >= count);
  if (to.size() < count) to.resize(count);
  std::copy_n(from.begin(), count, to.begin());
}

}  // namespace rollout
