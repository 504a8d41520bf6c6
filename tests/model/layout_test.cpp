// Which keys a token may see: the index tensors of random passes, followed step by step with codes in place of values,
// against the definition (spec 4.5, 4.7).
#include "model/layout.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "base/rng.h"
#include "fixture.h"

namespace test {
namespace {

using model::CompressLayout;
using model::LayerKind;
using model::Layout;
using model::Span;

constexpr int64_t kSequenceCode = 10000;  // code of a token or an entry: sequence * kSequenceCode + index
constexpr int64_t kStale = -7;            // what state holds that no sequence wrote

model::Config config_with(int64_t window, int64_t csa, int64_t hca) {
  model::Config config = model::Config::load(model_golden("small"));
  config.sliding_window = window;
  config.csa_ratio = csa;
  config.hca_ratio = hca;
  return config;
}

Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

std::vector<int64_t> list(const Tensor& tensor) {
  const Tensor flat = tensor.to(at::kLong).contiguous().flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

std::vector<int64_t> range(int64_t sequence, int64_t begin, int64_t end) {
  std::vector<int64_t> codes;
  for (int64_t i = begin; i < end; ++i) codes.push_back(sequence * kSequenceCode + i);
  return codes;
}

// The state of one compressor, holding codes.
struct CodeState {
  Tensor rows_SP, entries_SN;
};

// Moves codes as attention and the compressors move values, and compares what each token sees.
class Follower {
 public:
  Follower(const model::Config& config, int64_t slots, int64_t capacity) : config_(config), capacity_(capacity) {
    if (capacity == 0) return;
    ring_SX_ = at::full({slots, config.sliding_window}, kStale, at::kLong);
    csa_ = state(slots, config.csa_ratio, 2 * config.csa_ratio);
    hca_ = state(slots, config.hca_ratio, config.hca_ratio);
  }

  // sequences: one number for each span.
  void pass(const std::vector<Span>& spans, const std::vector<int64_t>& sequences) {
    const Layout layout = Layout::build(config_, spans, capacity_, at::kCPU);
    spans_ = spans;
    sequences_ = sequences;
    code_.clear();
    for (size_t s = 0; s < spans.size(); ++s) {
      const auto codes = range(sequences[s], spans[s].start, spans[s].start + spans[s].count);
      code_.insert(code_.end(), codes.begin(), codes.end());
    }
    ASSERT_EQ(layout.num_tokens, static_cast<int64_t>(code_.size()));
    queries(layout);
    window(layout);
    compressor(layout, layout.csa, csa_);
    compressor(layout, layout.hca, hca_);
  }

 private:
  CodeState state(int64_t slots, int64_t ratio, int64_t rows) const {
    return {at::full({slots, rows}, kStale, at::kLong), at::full({slots, capacity_ / ratio}, kStale, at::kLong)};
  }
  int64_t sequence_of(size_t token) const { return code_[token] / kSequenceCode; }
  int64_t position_of(size_t token) const { return code_[token] % kSequenceCode; }

  void queries(const Layout& layout) const {
    const Tensor query_token = layout.block_token_QL.flatten().index_select(0, layout.token_block_T);
    EXPECT_TRUE(at::equal(query_token, at::arange(layout.num_tokens)));
    for (size_t t = 0; t < code_.size(); ++t) {
      EXPECT_EQ(layout.position_T[static_cast<int64_t>(t)].item<float>(), static_cast<float>(position_of(t)));
    }
  }
  // The codes among keys [Q, N] that the mask [Q, L, N] lets a token see, in the order of the keys.
  static std::vector<int64_t> seen(const Layout& layout, const Tensor& keys_QN, const Tensor& mask_QLN, size_t token) {
    const int64_t at = layout.token_block_T[static_cast<int64_t>(token)].item<int64_t>();
    const int64_t q = at / layout.block_len, l = at % layout.block_len;
    return list(keys_QN[q].masked_select(mask_QLN[q][l]));
  }

  void window(const Layout& layout) {
    const Tensor codes = numbers(code_);
    const Tensor pool = layout.cached ? at::cat({ring_SX_.index_select(0, layout.slot_S).flatten(), codes}) : codes;
    const Tensor keys = pool.take(layout.window_QX);
    for (size_t t = 0; t < code_.size(); ++t) {
      const int64_t first = std::max<int64_t>(0, position_of(t) - config_.sliding_window + 1);
      EXPECT_EQ(seen(layout, keys, layout.in_window_QLX, t), range(sequence_of(t), first, position_of(t) + 1));
    }
    if (layout.cached) ring_SX_.flatten().index_copy_(0, layout.ring_to, codes.index_select(0, layout.ring_from));
  }

  void compressor(const Layout& layout, const CompressLayout& blocks, CodeState& state) {
    const Tensor codes = numbers(code_), sentinel = numbers({-1});
    const Tensor pool = layout.cached
                            ? at::cat({state.rows_SP.index_select(0, layout.slot_S).flatten(), codes, sentinel})
                            : at::cat({codes, sentinel});
    for (size_t t = 0; t < code_.size(); ++t) {
      EXPECT_EQ(blocks.ape_row_T[static_cast<int64_t>(t)].item<int64_t>(), position_of(t) % blocks.ratio);
    }
    const std::vector<int64_t> new_entries = pooled_rows(blocks, pool);
    Tensor entries = numbers(new_entries);
    if (layout.cached) {
      state.rows_SP.flatten().index_copy_(0, blocks.state_to, codes.index_select(0, blocks.state_from));
      state.entries_SN.flatten().index_copy_(0, blocks.entry_slot_B, entries);
      entries = state.entries_SN.flatten();
    }
    const Tensor keys =
        blocks.max_entries > 0 ? entries.take(blocks.entries_QN) : at::zeros({layout.num_blocks, 0}, at::kLong);
    for (size_t t = 0; t < code_.size(); ++t) {
      EXPECT_EQ(seen(layout, keys, blocks.visible_QLN, t),
                range(sequence_of(t), 0, (position_of(t) + 1) / blocks.ratio));
    }
  }

  // Checks the rows of each block that ends in this pass; returns the codes of the entries.
  std::vector<int64_t> pooled_rows(const CompressLayout& blocks, const Tensor& pool) const {
    const Tensor rows = pool.take(blocks.rows_BP);
    std::vector<int64_t> entries;
    for (size_t s = 0; s < spans_.size(); ++s) {
      const int64_t begin = spans_[s].start, end = begin + spans_[s].count, ratio = blocks.ratio;
      for (int64_t w = begin / ratio; (w + 1) * ratio <= end; ++w) {
        const auto b = static_cast<int64_t>(entries.size());
        std::vector<int64_t> wanted;
        if (blocks.overlap && w == 0) wanted.assign(static_cast<size_t>(ratio), -1);
        const auto own =
            range(sequences_[s], std::max<int64_t>(0, (blocks.overlap ? w - 1 : w) * ratio), (w + 1) * ratio);
        wanted.insert(wanted.end(), own.begin(), own.end());
        EXPECT_EQ(list(rows[b]), wanted);
        EXPECT_EQ(blocks.position_B[b].item<float>(), static_cast<float>(w * ratio));
        entries.push_back(sequences_[s] * kSequenceCode + w);
      }
    }
    EXPECT_EQ(blocks.num_new, static_cast<int64_t>(entries.size()));
    return entries;
  }

  const model::Config& config_;
  int64_t capacity_;
  Tensor ring_SX_;
  CodeState csa_, hca_;
  std::vector<Span> spans_;
  std::vector<int64_t> sequences_, code_;
};

TEST(Layout, PackedDocumentsSeeTheirOwnTokensAndEntriesOnly) {
  base::Philox random(1);
  for (int round = 0; round < 30; ++round) {
    const model::Config config =
        config_with(1 + static_cast<int64_t>(random.next_below(9)), 4, 1 + static_cast<int64_t>(random.next_below(12)));
    std::vector<Span> spans;
    std::vector<int64_t> sequences;
    for (uint64_t i = random.next_below(6) + 1; i > 0; --i) {
      spans.push_back({0, 1 + static_cast<int64_t>(random.next_below(40)), 0});
      sequences.push_back(static_cast<int64_t>(i));
    }
    Follower(config, 0, 0).pass(spans, sequences);
  }
}

TEST(Layout, PassesOverACacheSeeWhatTheSequenceWroteBefore) {
  base::Philox random(2);
  for (int round = 0; round < 12; ++round) {
    const model::Config config =
        config_with(1 + static_cast<int64_t>(random.next_below(9)), 4, 2 + static_cast<int64_t>(random.next_below(9)));
    constexpr int64_t kSlots = 4, kCapacity = 70;
    Follower follower(config, kSlots, kCapacity);
    std::vector<int64_t> done(kSlots, 0), sequence = {1, 2, 3, 4};
    for (int step = 0; step < 30; ++step) {
      std::vector<Span> spans;
      std::vector<int64_t> sequences;
      for (int64_t slot = kSlots - 1; slot >= 0; --slot) {
        const auto s = static_cast<size_t>(slot);
        if (random.next_below(20) == 0 || done[s] == kCapacity)
          done[s] = 0, sequence[s] += kSlots;  // the slot's next sequence
        const auto wish =
            static_cast<int64_t>(random.next_below(3) == 0 ? random.next_below(25) : random.next_below(2));
        const int64_t count = std::min(wish, kCapacity - done[s]);
        if (count == 0) continue;
        spans.push_back({done[s], count, slot});
        sequences.push_back(sequence[s]);
        done[s] += count;
      }
      if (!spans.empty()) follower.pass(spans, sequences);
    }
  }
}

// Spec appendix B, with the published sizes.
TEST(Layout, GoldenValuesOfThePublishedSizes) {
  const model::Config config = config_with(128, 4, 128);
  Layout layout = Layout::build(config, {{0, 131, 0}}, 256, at::kCPU);
  std::vector<int64_t> ring(128, -1);
  for (int64_t i = 0; i < layout.ring_to.size(0); ++i) {
    ring[static_cast<size_t>(layout.ring_to[i].item<int64_t>())] = layout.ring_from[i].item<int64_t>();
  }
  for (int64_t slot = 3; slot < 128; ++slot) EXPECT_EQ(ring[static_cast<size_t>(slot)], slot);  // positions 3..127
  for (int64_t slot = 0; slot < 3; ++slot) EXPECT_EQ(ring[static_cast<size_t>(slot)], 128 + slot);
  const auto visible = [&](const CompressLayout& blocks, int64_t t) {
    return blocks.visible_QLN.flatten(0, 1)[layout.token_block_T[t]].sum().item<int64_t>();
  };
  EXPECT_EQ(visible(layout.csa, 130), 32);
  EXPECT_EQ(visible(layout.hca, 130), 1);
  EXPECT_EQ(visible(layout.hca, 127), 1);
  EXPECT_EQ(visible(layout.hca, 126), 0);
  EXPECT_EQ(layout.in_window_QLX.flatten(0, 1)[layout.token_block_T[130]].sum().item<int64_t>(), 128);
  layout = Layout::build(config, {{0, 131, 0}}, 0, at::kCPU);
  EXPECT_EQ(list(layout.csa.rows_BP[1]), list(at::arange(8)));
  EXPECT_EQ(layout.csa.position_B[1].item<float>(), 4);
}

TEST(Layout, ImpossibleSpansAreRefusedWithTheReason) {
  const model::Config config = config_with(7, 4, 8);
  const auto build = [&](std::vector<Span> spans, int64_t capacity) {
    return [&config, spans, capacity] { Layout::build(config, spans, capacity, at::kCPU); };
  };
  expect_error(base::Code::invalid_argument, {"at least one span"}, build({}, 0));
  expect_error(base::Code::invalid_argument, {"span of 0 tokens", "position 0"}, build({{0, 0, 0}}, 0));
  expect_error(base::Code::invalid_argument, {"-1"}, build({{-1, 3, 0}}, 10));
  expect_error(base::Code::invalid_argument, {"position 4", "cache"}, build({{4, 3, 0}}, 0));
  expect_error(base::Code::invalid_argument, {"11 tokens", "10", "max_context"}, build({{8, 3, 0}}, 10));
  expect_error(base::Code::invalid_argument, {"1025 tokens", "1024", "max_position_embeddings"},
               build({{0, 1025, 0}}, 0));
}

}  // namespace
}  // namespace test
