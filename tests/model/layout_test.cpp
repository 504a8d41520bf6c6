// The integers of a pass: where each token stands and which entries it completes. Which keys a token then sees is
// tested with the kernels (tests/kernels/attention_test.cpp, compressor_test.cpp).
#include "model/layout.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "fixture.h"

namespace test {
namespace {

using model::Layout;
using model::Span;

model::Config config_with(int64_t window, int64_t csa, int64_t hca) {
  model::Config config = model::Config::load(model_golden("small"));
  config.sliding_window = window;
  config.csa_ratio = csa;
  config.hca_ratio = hca;
  return config;
}

TEST(Layout, TokensOfAllSpansStandOneAfterTheOther) {
  const Layout layout =
      model::make_layout(config_with(7, 4, 8), std::vector<Span>{{3, 2, 5}, {0, 3, 1}, {9, 1, 0}}, 20);
  EXPECT_EQ(layout.num_tokens, 6);
  EXPECT_EQ(layout.window, 7);
  EXPECT_TRUE(layout.cached);
  EXPECT_EQ(layout.position_T, (std::vector<int32_t>{3, 4, 0, 1, 2, 9}));
  EXPECT_EQ(layout.span_T, (std::vector<int32_t>{0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(layout.spans[1].first, 2);
  EXPECT_EQ(layout.spans[2].first, 5);
}

TEST(Layout, AnEntryIsCompletedByTheLastTokenOfItsBlock) {
  // Positions 3..8: the blocks of 4 that end at 3 and 7; none of 8 but the one that ends at 7.
  const Layout layout =
      model::make_layout(config_with(7, 4, 8), std::vector<Span>{{3, 6, 0}, {0, 3, 1}, {0, 4, 2}}, 40);
  EXPECT_EQ(layout.csa.first_new_S, (std::vector<int64_t>{0, 2, 2}));
  EXPECT_EQ(layout.csa.num_new, 3);
  EXPECT_EQ(layout.hca.num_new, 1);
  EXPECT_EQ(layout.csa.first_entry(layout.spans[0]), 0);
  EXPECT_EQ(layout.csa.end_entry(layout.spans[0]), 2);
  EXPECT_EQ(layout.csa.rows(), 8);
  EXPECT_EQ(layout.hca.rows(), 8);
  EXPECT_EQ(layout.csa.capacity, 10);
}

TEST(Layout, ItsMemoryIsUsedAgain) {
  const model::Config config = config_with(7, 4, 8);
  Layout layout;
  model::build_layout(config, std::vector<Span>{{0, 100, 0}}, 0, layout);
  const int32_t* memory = layout.position_T.data();
  model::build_layout(config, std::vector<Span>{{0, 10, 0}, {0, 20, 0}}, 0, layout);
  EXPECT_EQ(layout.position_T.data(), memory);
  EXPECT_EQ(layout.num_tokens, 30);
  EXPECT_EQ(layout.csa.num_new, 7);
}

TEST(Layout, ImpossibleSpansAreRefusedWithTheReason) {
  const model::Config config = config_with(7, 4, 8);
  const auto build = [&](std::vector<Span> spans, int64_t capacity) {
    return [&config, spans, capacity] { model::make_layout(config, spans, capacity); };
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
