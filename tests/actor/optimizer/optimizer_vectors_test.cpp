// AdamW, norm clip and schedules against their golden vectors.
#include <cstring>

#include "actor/optimizer/adamw.h"
#include "actor/optimizer/grad_clip.h"
#include "actor/optimizer/schedule.h"
#include "actor/rl_vectors.h"
#include "base/error.h"
#include "base/parallel.h"

namespace actor {
namespace {

using actor_test::Json;
using actor_test::to_tensor;
using actor_test::values_of;

constexpr double kLimitAdamW = 1e-6;  // of the vectors' README, f32

void check_adamw(at::ScalarType dtype, double limit) {
  for (const auto& vector : actor_test::vectors_of("adamw")) {
    const Json& in = vector.inputs;
    AdamW optimizer({in["betas"][0], in["betas"][1], in["eps"], in["weight_decay"]});
    const Tensor master = to_tensor(in["param"], dtype);
    optimizer.add("p", master, true);
    for (size_t t = 0; t < in["grads"].size(); ++t) {
      const bool has_grad = !in["grads"][t].is_null();
      optimizer.step({has_grad ? to_tensor(in["grads"][t], dtype) : Tensor()}, in["lr"], 1);
      const Json& want = vector.expected["steps"][t];
      const std::string where = vector.id + " step " + std::to_string(t);
      EXPECT_EQ(optimizer.steps()["p"], want["step"]) << where;
      actor_test::expect_near(optimizer.tensors().at("m.p"), want["m"], limit, 0, where + " m");
      actor_test::expect_near(optimizer.tensors().at("v.p"), want["v"], limit, 0, where + " v");
      actor_test::expect_near(master, want["master"], limit, 0, where + " master");
      const Tensor published = master.to(at::kFloat).to(at::kBFloat16);
      for (int64_t i = 0; i < published.numel(); ++i) {
        uint16_t bits;
        std::memcpy(&bits, published.data_ptr<at::BFloat16>() + i, 2);
        EXPECT_EQ(bits, want["bf16_bits"][static_cast<size_t>(i)].get<uint16_t>()) << where << " " << i;
      }
    }
  }
}

TEST(AdamW, VectorsAgreeInF64) { check_adamw(at::kDouble, actor_test::kLimitF64); }
TEST(AdamW, VectorsAgreeInF32WithTheSamePublishedBits) { check_adamw(at::kFloat, kLimitAdamW); }

TEST(AdamW, ATensorThatDoesNotDecayMovesByItsGradientOnly) {
  AdamW optimizer({0.9, 0.98, 1e-8, 0.5});
  const Tensor decaying = at::ones({3}), kept = at::ones({3});
  optimizer.add("decaying", decaying, true);
  optimizer.add("kept", kept, false);
  optimizer.step({at::zeros({3}), at::zeros({3})}, 0.1, 1);
  EXPECT_TRUE(at::equal(kept, at::ones({3})));
  EXPECT_TRUE(at::allclose(decaying, at::full({3}, 0.95)));
}

TEST(AdamW, ThreadsDoNotChangeTheResult) {
  at::manual_seed(3);
  const Tensor start = at::randn({(1 << 20) + 12345}), grad = at::randn_like(start);
  const auto run = [&](int threads) {
    const int before = base::num_threads();
    base::set_num_threads(threads);
    AdamW optimizer({});
    const Tensor master = start.clone();
    optimizer.add("p", master, true);
    for (int i = 0; i < 3; ++i) optimizer.step({grad}, 1e-3, 0.37);
    base::set_num_threads(before);
    return master;
  };
  EXPECT_TRUE(at::equal(run(1), run(3)));
}

TEST(AdamW, LoadedStateRepeatsTheNextStepToTheBit) {
  at::manual_seed(5);
  const Tensor grad = at::randn({40, 3}), master = at::randn({40, 3});
  AdamW first({});
  first.add("w", master, true);
  first.step({grad}, 1e-2, 1);
  const Tensor twin = master.clone();
  AdamW second({});
  second.add("w", twin, true);
  second.load(first.tensors(), first.steps(), "test");
  first.step({grad * 2}, 1e-2, 1);
  second.step({grad * 2}, 1e-2, 1);
  EXPECT_TRUE(at::equal(master, twin));
}

TEST(AdamW, RefusesStateThatIsNotItsOwn) {
  AdamW optimizer({});
  optimizer.add("w", at::ones({2}), true);
  const NamedTensors good{{"m.w", at::ones({2})}, {"v.w", at::ones({2})}};
  EXPECT_NO_THROW(optimizer.load(good, Json{{"w", 3}}, "test"));
  EXPECT_THROW(optimizer.load(good, Json{{"w", 0}}, "test"), base::Error);
  EXPECT_THROW(optimizer.load(good, Json::object(), "test"), base::Error);
  EXPECT_THROW(optimizer.load({{"m.w", at::ones({2})}}, Json{{"w", 3}}, "test"), base::Error);
  EXPECT_THROW(optimizer.load({{"m.w", at::ones({3})}, {"v.w", at::ones({3})}}, Json{{"w", 3}}, "test"), base::Error);
  EXPECT_THROW(optimizer.load({{"m.x", at::ones({2})}, {"v.x", at::ones({2})}}, Json::object(), "test"), base::Error);
  EXPECT_EQ(optimizer.steps()["w"], 3);  // a refused state changes nothing
}

TEST(GradClip, VectorsAgree) {
  for (const auto& vector : actor_test::vectors_of("grad_clip")) {
    std::vector<Tensor> owned, all;
    for (size_t i = 0; i < vector.inputs["grads"].size(); ++i) {
      all.push_back(to_tensor(vector.inputs["grads"][i], at::kDouble));
      if (vector.inputs["owned"][i] == 1) owned.push_back(all.back());
    }
    const double norm = global_norm(owned);
    EXPECT_EQ(!std::isfinite(norm), vector.expected["skip"].get<bool>()) << vector.id;
    if (vector.expected["skip"]) continue;
    const double factor = clip_factor(norm, vector.inputs["max_norm"]);
    actor_test::expect_near({norm}, vector.expected["norm"], actor_test::kLimitF64, 1, vector.id + " norm");
    actor_test::expect_near({factor}, vector.expected["coef"], actor_test::kLimitF64, 1, vector.id + " coef");
    for (size_t i = 0; i < all.size(); ++i) {
      actor_test::expect_near(all[i] * factor, vector.expected["grads"][i], actor_test::kLimitF64, 0,
                              vector.id + " grads");
    }
  }
}

TEST(GradClip, ANormOfZeroLimitsNothing) { EXPECT_EQ(clip_factor(5, 0), 1); }

ScheduleSettings schedule_of(const Json& in) {
  return {in["style"],
          in["init_lr"],
          in["max_lr"],
          in["min_lr"],
          in["warmup"],
          in["decay"],
          in.value("anneal", int64_t{0})};
}

TEST(Schedule, VectorsAgree) {
  for (const auto& vector : actor_test::vectors_of("lr_schedule")) {
    const ScheduleSettings settings = schedule_of(vector.inputs);
    EXPECT_NO_THROW(settings.check()) << vector.id;
    std::vector<double> got;
    for (const Json& n : vector.inputs["n"]) got.push_back(learning_rate(settings, n));
    actor_test::expect_near(got, vector.expected["lr"], actor_test::kLimitF64, 0, vector.id);
  }
}

TEST(Schedule, LinearFallsEvenlyFromTheWarmUpToItsFloor) {
  const ScheduleSettings settings{"linear", 0, 1e-3, 1e-4, 10, 110, 0};
  EXPECT_EQ(learning_rate(settings, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 5), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 10), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 60), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 110), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(settings, 1000), 1e-4);
}

TEST(Schedule, RefusesADecayThatEndsBeforeItStarts) {
  EXPECT_THROW((ScheduleSettings{"cosine", 0, 1e-3, 0, 10, 10, 0}.check()), base::Error);
  EXPECT_THROW((ScheduleSettings{"warmup_constant_cosine", 0, 1e-3, 0, 50, 100, 60}.check()), base::Error);
  EXPECT_THROW((ScheduleSettings{"cosine", 0, 1e-3, 1e-2, 0, 10, 0}.check()), base::Error);
  EXPECT_THROW((ScheduleSettings{"steps", 0, 1e-3, 0, 0, 10, 0}.check()), base::Error);
}

}  // namespace
}  // namespace actor
