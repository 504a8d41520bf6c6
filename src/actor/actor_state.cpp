// The actor's state as named tensors and JSON, for checkpoints.
#include "actor/actor.h"
#include "base/error.h"

namespace actor {

namespace {

constexpr int64_t kStateFormat = 1;

// The tensors whose names start with the prefix, without it.
NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

void put_weights(const model::Weights& weights, const std::string& prefix, NamedTensors& tensors) {
  weights.visit(
      [&](const model::TensorInfo& info, const Tensor& value) { tensors[prefix + info.name] = value.detach(); });
}

// Each tensor of `like` must be there with its shape and type, and no other.
void check_weights(const model::Weights& like, const NamedTensors& tensors, const std::string& where) {
  size_t expected = 0;
  like.visit([&](const model::TensorInfo& info, const Tensor& want) {
    ++expected;
    const auto at = tensors.find(info.name);
    if (at == tensors.end()) base::fail(base::Code::corruption, "{}: {} is missing", where, info.name);
    if (at->second.sizes() != want.sizes() || at->second.scalar_type() != want.scalar_type()) {
      base::fail(base::Code::corruption, "{}: {} is {} {}, but the model needs {} {}", where, info.name,
                 c10::toString(at->second.scalar_type()), fmt::join(at->second.sizes(), "x"),
                 c10::toString(want.scalar_type()), fmt::join(want.sizes(), "x"));
    }
  });
  if (tensors.size() != expected) {
    base::fail(base::Code::corruption, "{}: {} tensors for a model of {}; it belongs to another model", where,
               tensors.size(), expected);
  }
}

void copy_weights(const NamedTensors& tensors, model::Weights& weights) {
  at::NoGradGuard no_grad;
  weights.visit([&](const model::TensorInfo& info, Tensor& value) { value.copy_(tensors.at(info.name)); });
}

}  // namespace

ActorState Actor::state() const {
  ActorState state;
  state.tensors = optimizer_.tensors();
  put_weights(masters_, "master.", state.tensors);
  if (reference_) put_weights(*reference_, "reference.", state.tensors);
  state.json = {{"format", kStateFormat},
                {"updates", updates_},
                {"steps", optimizer_.steps()},
                {"stop_rules", stop_rules_.state()}};
  return state;
}

void Actor::load_state(const ActorState& state, const std::string& where) {
  const NamedTensors masters = with_prefix(state.tensors, "master."),
                     reference = with_prefix(state.tensors, "reference.");
  check_weights(masters_, masters, where + ", masters");
  if (reference_) check_weights(*reference_, reference, where + ", reference policy");
  NamedTensors moments;
  for (const auto& [name, tensor] : state.tensors) {
    if (name.starts_with("m.") || name.starts_with("v.")) moments[name] = tensor;
  }
  if (masters.size() + reference.size() + moments.size() != state.tensors.size() ||
      (!reference_ && !reference.empty())) {
    base::fail(base::Code::corruption, "{}: holds tensors that an actor with these settings has no place for", where);
  }
  int64_t updates = 0;
  StopRules stop_rules = stop_rules_;
  AdamW optimizer = optimizer_;
  try {
    if (state.json.at("format").get<int64_t>() != kStateFormat || state.json.at("updates").get<int64_t>() < 0) {
      base::fail(base::Code::corruption, "{}: actor state of format {}, but this program reads format {}", where,
                 base::to_line(state.json.at("format")), kStateFormat);
    }
    updates = state.json.at("updates").get<int64_t>();
    stop_rules.load(state.json.at("stop_rules"), where);
    optimizer.load(moments, state.json.at("steps"), where);
  } catch (const base::Json::exception& error) {
    base::fail(base::Code::corruption, "{}: actor state: {}", where, error.what());
  }
  copy_weights(masters, masters_);
  if (reference_) {
    copy_weights(reference, *reference_);
    reference_run_ = model::RunWeights::frozen(*reference_, profile_);
  }
  optimizer_ = std::move(optimizer);  // shares the masters
  stop_rules_ = std::move(stop_rules);
  updates_ = updates;
  refresh_run_weights();
}

}  // namespace actor
