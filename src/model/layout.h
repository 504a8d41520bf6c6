// The layout of a forward pass (kernels/layout.h) for a model's config, and its rotary tables.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/layout.h"
#include "model/config.h"

namespace model {

using kernels::Layout;
using kernels::RopeTable;
using kernels::Span;

// Lays out the spans (their `first` is set here) in `layout`, whose memory is used again. capacity: tokens that a slot
// of the cache can hold; 0 without a cache. Errors: invalid_argument for an empty or overlong span.
void build_layout(const Config& config, std::span<const Span> spans, int64_t capacity, Layout& layout);
Layout make_layout(const Config& config, std::span<const Span> spans, int64_t capacity = 0);

// Rotary embedding on the last qk_rope_head_dim dims, interleaved pairs, with YaRN on layers that have a compressor.
// Source: spec 4.4; the angle is the f32 product of position and frequency (decisions 24).
struct RopeTables {
  RopeTable window, compress;  // for layers without and with a compressor

  // Rows for the positions 0 .. positions - 1.
  static RopeTables make(const Config& config, int64_t positions, tensor::Device device);
  int64_t positions() const { return window.cos_PR.defined() ? window.cos_PR.size(0) : 0; }
};

// One frequency per pair; compress: base compress_rope_theta with YaRN, else base rope_theta without.
std::vector<double> rope_frequencies(const Config& config, bool compress);

}  // namespace model
