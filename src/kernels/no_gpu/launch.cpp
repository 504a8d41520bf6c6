// The functions of kernels/gpu in a build without a GPU compiler: take() says no, so that ops run their references, and
// nothing else here is ever called.
#include "kernels/gpu/launch.h"

#include "base/error.h"
#include "kernels/gpu/hyper_connection.h"
#include "kernels/gpu/log_prob.h"
#include "kernels/gpu/quantise.h"
#include "kernels/gpu/rms_norm.h"
#include "kernels/gpu/router.h"

namespace {
[[noreturn]] void absent() {
  base::fail(base::Code::internal, "a GPU kernel is called in a build without (FURLONG_GPU)");
}
}  // namespace

bool kernels::gpu::take(bool) { return false; }

void kernels::gpu::simulate_groups(const cpu::GroupedRows&, BlockFormat, Queue) { absent(); }
void kernels::gpu::quantise_groups(const QuantisedGroups&, Queue) { absent(); }
void kernels::gpu::quantise_blocks(const QuantisedBlocks&, Queue) { absent(); }
void kernels::gpu::dequantise_blocks(const StoredBlocks&, Queue) { absent(); }
void kernels::gpu::hc_pre(const cpu::HcPre&, const float*, const cpu::HcPreResult&, Queue) { absent(); }
void kernels::gpu::hc_post(const cpu::HcPost&, bool, float*, Queue) { absent(); }
void kernels::gpu::sinkhorn(const cpu::Sinkhorn&, float*, Queue) { absent(); }
void kernels::gpu::rms_norm(const cpu::NormRows&, float*, Queue) { absent(); }
void kernels::gpu::rotate(const cpu::TurnedRows&, Queue) { absent(); }
void kernels::gpu::best_experts(const cpu::RouterInput&, const float*, int32_t*, Queue) { absent(); }
void kernels::gpu::expert_weights(const cpu::RouterInput&, const int32_t*, float*, Queue) { absent(); }
void kernels::gpu::log_probs(const LogitRows&, const LogProbRows&, Queue) { absent(); }
