// A forward pass asks the device for nothing: on a GPU each value that is read back would stop the queue. Observed as
// the operators that run; on a CPU the same operators run, they only cost nothing there.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fixture.h"
#include "model/transformer.h"

namespace test {
namespace {

std::set<std::string>& seen_operators() {
  static thread_local std::set<std::string> seen;
  return seen;
}

std::unique_ptr<at::ObserverContext> note_operator(const at::RecordFunction& function) {
  seen_operators().insert(function.name());
  return nullptr;
}

// Names of all operators that `run` calls.
template <class Run>
std::set<std::string> operators_of(const Run& run) {
  seen_operators().clear();
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(note_operator).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return seen_operators();
}

std::vector<std::string> host_reads(const std::set<std::string>& operators) {
  static const std::set<std::string> kReads = {
      "aten::item",         "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
      "aten::nonzero",      "aten::unique_dim",          "aten::_unique2",   "aten::bincount",
      "aten::masked_select"};
  std::vector<std::string> reads;
  std::set_intersection(operators.begin(), operators.end(), kReads.begin(), kReads.end(), std::back_inserter(reads));
  return reads;
}

class HostReads : public testing::TestWithParam<const char*> {
 protected:
  HostReads() : fixture_(load_fixture(model_golden("edges"), "bf16")), profile_(model::Profile::parse(GetParam())) {
    weights_ = model::run_weights(fixture_.masters, profile_);
  }
  Tensor logits(const model::Layout& layout, const Tensor& ids, model::Cache* cache, bool recompute) const {
    const Tensor streams = model::forward_streams({weights_, profile_, layout, ids, cache, nullptr, recompute});
    return model::head_logits(weights_, model::final_hidden(weights_, profile_, streams));
  }
  Fixture fixture_;
  model::Profile profile_;
  model::Weights weights_;
};

TEST_P(HostReads, AreAbsentFromTrainingForwardAndBackward) {
  weights_.visit([](const model::TensorInfo& info, Tensor& tensor) {
    if (info.stored_as != model::StoredAs::i64) tensor.requires_grad_();
  });
  const model::Layout layout = model::Layout::build(fixture_.config, {{0, 40, 0}, {0, 24, 0}}, 0, at::kCPU);
  const auto operators =
      operators_of([&] { logits(layout, fixture_.ids(), nullptr, /*recompute=*/true).sum().backward(); });
  EXPECT_GT(operators.size(), 30u);
  EXPECT_EQ(host_reads(operators), std::vector<std::string>());
}

TEST_P(HostReads, AreAbsentFromGeneration) {
  const at::NoGradGuard no_grad;
  model::Cache cache(fixture_.config, 2, 100, at::kCPU);
  const model::Layout first = model::Layout::build(fixture_.config, {{0, 40, 0}}, 100, at::kCPU);
  const model::Layout mixed = model::Layout::build(fixture_.config, {{40, 1, 0}, {0, 23, 1}}, 100, at::kCPU);
  const auto operators = operators_of([&] {
    logits(first, fixture_.ids().narrow(0, 0, 40), &cache, false);
    logits(mixed, fixture_.ids().narrow(0, 40, 24), &cache, false);
  });
  EXPECT_GT(operators.size(), 30u);
  EXPECT_EQ(host_reads(operators), std::vector<std::string>());
}

TEST_P(HostReads, WouldBeSeen) {
  const auto operators = operators_of([&] { at::ones({1}).item<float>(); });
  EXPECT_FALSE(host_reads(operators).empty());
}

INSTANTIATE_TEST_SUITE_P(Profiles, HostReads, testing::Values("f32", "fp8_fp4"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace test
