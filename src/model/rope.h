// Rotary position embedding on the last qk_rope_head_dim dims, interleaved pairs, with YaRN on layers that have a
// compressor. Source: spec 4.4; the angle is the f32 product of position and frequency (decisions 24).
#pragma once
#include <vector>

#include "model/config.h"
#include "tensor/tensor.h"

namespace model {

// cos and sin of every angle: f32 [N, qk_rope_head_dim / 2].
struct Rotation {
  tensor::Tensor cos, sin;
};

// One frequency per pair; compress: base compress_rope_theta with YaRN, else base rope_theta without.
std::vector<double> rope_frequencies(const Config& config, bool compress);

Rotation rotation(const Config& config, bool compress, const tensor::Tensor& position_N);

// values [N, .., D], N as in the rotation; inverse turns the other way (the gradient of a turn, and of attention's
// output). Not rounded. Differentiable in values.
tensor::Tensor rotate(const tensor::Tensor& values, const Rotation& rotation, bool inverse = false);

}  // namespace model
