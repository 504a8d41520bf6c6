// AdamW over slices of each tensor, so that its one temporary stays small however large the tensor is.
#include "actor/optimizer/adamw.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

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
  const double t = static_cast<double>(slot.step);
  const double bias1 = 1 - std::pow(settings_.beta1, t), root_bias2 = std::sqrt(1 - std::pow(settings_.beta2, t));
  const double keep = slot.decays ? 1 - lr * settings_.weight_decay : 1;
  const Tensor flat_p = slot.master.view({-1}), flat_m = slot.m.view({-1}), flat_v = slot.v.view({-1});
  const Tensor flat_g = grad.reshape({-1});
  for (int64_t start = 0; start < flat_p.size(0); start += kSlice) {
    const int64_t count = std::min(kSlice, flat_p.size(0) - start);
    Tensor g = flat_g.narrow(0, start, count);
    if (grad_factor != 1) g = g * grad_factor;
    const Tensor p = flat_p.narrow(0, start, count), m = flat_m.narrow(0, start, count);
    const Tensor v = flat_v.narrow(0, start, count);
    m.mul_(settings_.beta1).add_(g, 1 - settings_.beta1);
    v.mul_(settings_.beta2).addcmul_(g, g, 1 - settings_.beta2);
    const Tensor denominator = v.sqrt().div_(root_bias2).add_(settings_.eps);
    p.mul_(keep).addcdiv_(m, denominator, -lr / bias1);
  }
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
