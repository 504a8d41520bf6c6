// Frequencies and tables of rotary embedding.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/layout.h"

namespace model {

std::vector<double> rope_frequencies(const Config& config, bool compress) {
  const int64_t dim = config.qk_rope_head_dim;
  const double base = compress ? config.compress_rope_theta : config.rope_theta;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dim / 2; ++i)
    frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  if (!compress || !config.rope_scaling) return frequencies;
  const RopeScaling& yarn = *config.rope_scaling;
  const auto dim_of = [&](double turns) {
    return static_cast<double>(dim) *
           std::log(static_cast<double>(yarn.original_max_position_embeddings) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  const double low = std::max(std::floor(dim_of(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(dim_of(yarn.beta_slow)), static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / yarn.factor * ramp + frequencies[i] * (1 - ramp);
  }
  return frequencies;
}

namespace {

RopeTable table_of(const Config& config, bool compress, int64_t positions, tensor::Device device) {
  const tensor::Tensor frequency = at::tensor(rope_frequencies(config, compress), at::kDouble).to(at::kFloat);
  const tensor::Tensor angle = at::arange(positions, at::kFloat).unsqueeze(1) * frequency;
  return {angle.cos().to(device), angle.sin().to(device)};
}

}  // namespace

RopeTables RopeTables::make(const Config& config, int64_t positions, tensor::Device device) {
  return {table_of(config, false, positions, device), table_of(config, true, positions, device)};
}

}  // namespace model
