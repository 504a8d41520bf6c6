// A decode step in which no answer begins or ends takes no memory from the allocator: not in kernels, not around them.
// Counted by taking the allocator's place; not under sanitizers, which do the same.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/parallel.h"
#include "rollout/tiny_engine.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

namespace {
std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;
void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t size) { return count(), __libc_malloc(size); }
void* calloc(size_t number, size_t size) { return count(), __libc_calloc(number, size); }
void* realloc(void* old, size_t size) { return count(), __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return count(), __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return count(), __libc_memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  count();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
}

namespace rollout {
namespace {

class Allocation : public testing::TestWithParam<const char*> {};

// No two kinds of result have the same size here, so that none finds its memory by the luck of another's.
model::Config config_of_different_widths() {
  model::Config config = test::tiny_config();
  config.hidden_size = 96;
  config.head_dim = 64;
  config.index_head_dim = 16;
  config.q_lora_rank = 24;
  config.o_lora_rank = 40;
  config.moe_intermediate_size = 56;
  config.check("config_of_different_widths");
  return config;
}

// Eight answers that go on to 80 tokens.
void submit_answers(Engine& engine) {
  for (uint64_t n = 0; n < 8; ++n) engine.submit(test::request(test::random_prompt(20, n), 80, 1, n));
}

TEST_P(Allocation, ADecodeStepTakesNoMemory) {
  const int before = base::num_threads();
  for (const int threads : {1, 2}) {
    base::set_num_threads(threads);
    const model::Config config = config_of_different_widths();
    auto engine = std::make_unique<Engine>(config, test::tiny_settings(GetParam()));
    test::publish(*engine, model::Weights::initialise(config, 1), 1);
    submit_answers(*engine);
    test::run_all(*engine);  // every kernel has seen the longest of its inputs
    submit_answers(*engine);
    for (int step = 0; step < 10; ++step) engine->step();
    allocations = 0;
    counting = true;
    for (int step = 0; step < 60; ++step) engine->step();  // entries of both kinds are completed on the way
    counting = false;
    EXPECT_EQ(allocations, 0) << threads << " threads, in 60 steps";
    EXPECT_EQ(engine->health().num_running, 8);
  }
  base::set_num_threads(before);
}

TEST(Allocation, WouldBeSeen) {
  allocations = 0;
  counting = true;
  const at::Tensor tensor = at::ones({100});
  counting = false;
  EXPECT_GT(allocations, 0);
}

INSTANTIATE_TEST_SUITE_P(Profiles, Allocation, testing::Values("f32", "bf16", "fp8", "fp8_fp4"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace rollout

#endif
