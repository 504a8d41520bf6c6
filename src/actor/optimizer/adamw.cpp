// Moments, step counts and which tensors decay; the update itself is kernels/adamw.h.
#include "actor/optimizer/adamw.h"

#include "base/error.h"
#include "kernels/adamw.h"

namespace actor {

namespace {
constexpr int64_t kSlice = int64_t{1} << 20;  // values; the temporary stays in cache
}

void AdamW::add(const std::string& name, const Tensor& master, bool decays) {
  CHECK(master.is_contiguous() && master.is_floating_point() && !master.requires_grad(), "{}", name);
  slots_.push_back({name, master, {}, {}, decays, 0});
}

void AdamW::step(const std::vector<Tensor>& grads, double lr, double grad_factor) {
  CHECK(grads.size() == slots_.size());
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) update(slots_[i], grads[i], lr, grad_factor);
  }
}

void AdamW::update(Slot& slot, const Tensor& grad, double lr, double grad_factor) {
  CHECK(grad.numel() == slot.master.numel(), "{}", slot.name);
  if (!slot.m.defined()) {
    slot.m = at::zeros_like(slot.master);
    slot.v = at::zeros_like(slot.master);
  }
  ++slot.step;
  kernels::AdamwStep step;
  step.lr = lr;
  step.beta1 = settings_.beta1;
  step.beta2 = settings_.beta2;
  step.eps = settings_.eps;
  step.decay = slot.decays ? settings_.weight_decay : 0;
  step.clip = grad_factor;
  step.step = slot.step;
  kernels::adamw(slot.master, slot.m, slot.v, grad.view_as(slot.master), step);
}

NamedTensors AdamW::tensors() const {
  NamedTensors named;
  for (const Slot& slot : slots_) {
    if (!slot.m.defined()) continue;
    named["m." + slot.name] = slot.m;
    named["v." + slot.name] = slot.v;
  }
  return named;
}

base::Json AdamW::steps() const {
  base::Json json = base::Json::object();
  for (const Slot& slot : slots_) {
    if (slot.m.defined()) json[slot.name] = slot.step;
  }
  return json;
}

void AdamW::load(const NamedTensors& tensors, const base::Json& steps, const std::string& where) {
  at::NoGradGuard no_grad;
  const auto corrupt = [&](const std::string& name, const std::string& what) {
    base::fail(base::Code::corruption, "{}: optimizer state of {}: {}", where, name, what);
  };
  if (!steps.is_object()) corrupt("all tensors", "step counts are not an object");
  std::vector<Slot> loaded = slots_;
  size_t used = 0;
  for (Slot& slot : loaded) {
    slot.m = slot.v = Tensor();
    slot.step = 0;
    const auto m = tensors.find("m." + slot.name), v = tensors.find("v." + slot.name);
    const auto count = steps.find(slot.name);
    const int present = (m != tensors.end()) + (v != tensors.end()) + (count != steps.end());
    if (present == 0) continue;
    if (present != 3) corrupt(slot.name, "needs both moments and a step count");
    if (!count->is_number_integer() || count->get<int64_t>() < 1)
      corrupt(slot.name, "step count is not a positive integer");
    if (m->second.sizes() != slot.master.sizes() || v->second.sizes() != slot.master.sizes()) {
      corrupt(slot.name, "the shape of a moment is not that of the weight");
    }
    slot.m = m->second.to(slot.master.options()).contiguous().clone();
    slot.v = v->second.to(slot.master.options()).contiguous().clone();
    slot.step = count->get<int64_t>();
    used += 2;
  }
  if (used != tensors.size() || used != 2 * steps.size()) {
    corrupt("all tensors", fmt::format("{} moments and {} step counts, of which {} moments belong to a weight",
                                       tensors.size(), steps.size(), used));
  }
  slots_ = std::move(loaded);
}

}  // namespace actor
