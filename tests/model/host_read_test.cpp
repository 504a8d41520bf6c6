// A forward pass asks the device for nothing: on a GPU each value that is read back would stop the queue. Observed as
// the operators that the references run, which are what a device without kernels runs.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "fixture.h"
#include "kernels/dispatch.h"
#include "model/transformer.h"

namespace test {
namespace {

// What a pass called: every operator, and those that read a value of a tensor ("outermost operator > reader").
struct Calls {
  std::set<std::string> operators, reads;
  std::vector<std::string> open;
};

Calls& calls() {
  static thread_local Calls recorded;
  return recorded;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  static const std::set<std::string> kReaders = {
      "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",    "aten::nonzero",
      "aten::unique_dim",          "aten::_unique2",   "aten::bincount", "aten::masked_select"};
  const std::string name = function.name();
  calls().operators.insert(name);
  const auto& open = calls().open;
  if (kReaders.count(name) > 0) calls().reads.insert((open.empty() ? "" : open.front() + " > ") + name);
  calls().open.push_back(name);
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) {
  if (!calls().open.empty()) calls().open.pop_back();
}

template <class Run>
Calls calls_of(const Run& run) {
  calls() = {};
  const kernels::ReferenceScope references;  // what a device without kernels runs
  const auto callback = at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION});
  const at::CallbackHandle handle = at::addThreadLocalCallback(callback);
  run();
  at::removeCallback(handle);
  return calls();
}

class HostReads : public testing::TestWithParam<const char*> {
 protected:
  HostReads() : fixture_(load_fixture(model_golden("edges"), "bf16")), profile_(model::Profile::parse(GetParam())) {
    run_ = RunModel(fixture_.masters, profile_);
  }
  Tensor logits(const model::Layout& layout, const Tensor& ids, model::Cache* cache, bool recompute) const {
    return run_.logits(model::forward_streams(run_.pass(layout, ids, cache, nullptr, recompute)));
  }
  Fixture fixture_;
  model::Profile profile_;
  RunModel run_;
};

TEST_P(HostReads, AreAbsentFromTrainingForwardAndBackward) {
  run_.require_gradients();
  const model::Layout layout = model::make_layout(fixture_.config, std::vector<model::Span>{{0, 40, 0}, {0, 24, 0}}, 0);
  const Calls made = calls_of([&] { logits(layout, fixture_.ids(), nullptr, /*recompute=*/true).sum().backward(); });
  EXPECT_GT(made.operators.size(), 30u);
  EXPECT_EQ(made.reads, std::set<std::string>());
}

TEST_P(HostReads, AreAbsentFromGeneration) {
  const at::NoGradGuard no_grad;
  model::Cache cache(fixture_.config, 2, 100, at::kCPU);
  const model::Layout first = model::make_layout(fixture_.config, std::vector<model::Span>{{0, 40, 0}}, 100);
  const model::Layout mixed =
      model::make_layout(fixture_.config, std::vector<model::Span>{{40, 1, 0}, {0, 23, 1}}, 100);
  const Calls made = calls_of([&] {
    logits(first, fixture_.ids().narrow(0, 0, 40), &cache, false);
    logits(mixed, fixture_.ids().narrow(0, 40, 24), &cache, false);
  });
  EXPECT_GT(made.operators.size(), 30u);
  EXPECT_EQ(made.reads, std::set<std::string>());
}

TEST_P(HostReads, WouldBeSeen) {
  const Calls made = calls_of([&] { at::ones({1}).item<float>(); });
  EXPECT_EQ(made.reads.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Profiles, HostReads, testing::Values("f32", "fp8_fp4"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace test
