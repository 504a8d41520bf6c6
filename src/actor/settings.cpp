// Relations between the actor's settings.
#include "actor/settings.h"

#include <cmath>

#include "base/error.h"
#include "tensor/tensor.h"

namespace actor {

model::Profile ActorSettings::precision() const {
  model::Profile precision = model::Profile::parse(profile);
  precision.kv_sim = precision.kv_sim || simulate_kv;
  precision.index_sim = precision.index_sim || simulate_index;
  return precision;
}

void ActorSettings::check() const {
  model::Profile::parse(profile);
  try {
    tensor::Device{device};
  } catch (const c10::Error&) {
    base::fail(base::Code::invalid_argument, "actor.device '{}' is no device of libtorch; write cpu, cuda or cuda:0",
               device);
  }
  if (tokens_per_microbatch < 1 || head_rows < 1 || num_minibatches < 1 || epochs < 1) {
    base::fail(
        base::Code::invalid_argument,
        "actor: tokens_per_microbatch ({}), head_rows ({}), num_minibatches ({}) and epochs ({}) must be at least 1",
        tokens_per_microbatch, head_rows, num_minibatches, epochs);
  }
  loss.check();
  optimizer.schedule.check();
}

void check_temperature(double temperature) {
  if (!std::isfinite(temperature) || temperature <= 0) {
    base::fail(
        base::Code::invalid_argument,
        "training at temperature {}: it must be finite and above 0, since the actor divides its logits by it; greedy "
        "decoding (0) is for evaluation",
        temperature);
  }
}

}  // namespace actor
