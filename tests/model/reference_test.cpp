// The model over references (what a device without kernels runs) against the model over CPU kernels.
#include <gtest/gtest.h>

#include "fixture.h"
#include "kernels/dispatch.h"

namespace test {
namespace {

// Profile f32, sums in other orders: the project's bound for that, and the oracle's for gradients.
constexpr double kLogitsMaxAbs = 3e-5, kGradientL2 = 2e-5;

class References : public testing::Test {
 protected:
  References() : fixture_(load_fixture(model_golden("small"), "f32")), run_(fixture_.masters, model::Profile()) {}
  Tensor logits(const std::vector<model::Span>& spans, const Tensor& ids, model::Cache* cache) const {
    const model::Layout layout = model::make_layout(fixture_.config, spans, cache != nullptr ? cache->capacity() : 0);
    return run_.logits(model::forward_streams(run_.pass(layout, ids, cache)));
  }
  Fixture fixture_;
  RunModel run_;
};

TEST_F(References, ComputeTheSameLogitsWithAndWithoutACache) {
  const at::NoGradGuard no_grad;
  const Tensor ids = fixture_.ids().narrow(0, 0, 60);
  const Tensor wanted = logits({{0, 60, 0}}, ids, nullptr);
  const kernels::ReferenceScope references;
  EXPECT_LE(max_abs(logits({{0, 60, 0}}, ids, nullptr), wanted), kLogitsMaxAbs);
  model::Cache cache(fixture_.config, 2, 80, at::kCPU);
  std::vector<Tensor> parts = {logits({{0, 37, 1}}, ids.narrow(0, 0, 37), &cache)};
  for (int64_t at = 37; at < 60; ++at) parts.push_back(logits({{at, 1, 1}}, ids.narrow(0, at, 1), &cache));
  EXPECT_LE(max_abs(at::cat(parts), wanted), kLogitsMaxAbs);
}

TEST_F(References, GiveTheSameGradients) {
  const Tensor ids = fixture_.ids().narrow(0, 0, 60);
  const auto gradients = [&] {
    RunModel run(fixture_.masters, model::Profile());
    run.require_gradients();
    const model::Layout layout = model::make_layout(fixture_.config, std::vector<model::Span>{{0, 37}, {0, 23}});
    at::log_softmax(run.logits(model::forward_streams(run.pass(layout, ids))), 1).select(1, 3).mean().backward();
    return run.gradients();
  };
  const auto kernels_gradients = gradients();
  const kernels::ReferenceScope references;
  const auto reference_gradients = gradients();
  EXPECT_EQ(kernels_gradients.size(), reference_gradients.size());
  for (const auto& [name, gradient] : kernels_gradients)
    EXPECT_LE(relative_l2(gradient, reference_gradients.at(name)), kGradientL2) << name;
}

}  // namespace
}  // namespace test
