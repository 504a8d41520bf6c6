// AdamW on f32 masters with f32 moments, decoupled decay on the tensors that decay only. The formula: kernels/adamw.h.
//
// A tensor without a gradient is skipped: no decay, its step count t stays. Moments come into being with the first
// gradient, so tensors that never learn cost no memory. Not thread-safe. Source: I. Loshchilov, F. Hutter, arXiv
// 1711.05101; torch.optim.AdamW.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/settings.h"
#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;
using NamedTensors = std::map<std::string, Tensor>;

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  double weight_decay = 0.1;

  template <class V>
  void visit(V&& v) {
    v("beta1", beta1, "decay of the mean of gradients", base::Range{0, 0.999999});
    v("beta2", beta2, "decay of the mean of squared gradients", base::Range{0, 0.9999999});
    v("eps", eps, "added to the root of the second moment", base::Range{1e-30, 1});
    v("weight_decay", weight_decay, "decoupled decay of matrices (not of norms, biases, sinks, mHC parameters)",
      base::Range{0, 10});
  }
};

class AdamW {
 public:
  explicit AdamW(const AdamWSettings& settings) : settings_(settings) {}

  // master is updated in place by step(); it shares memory with the caller's tensor. f32 (f64 in tests), contiguous.
  void add(const std::string& name, const Tensor& master, bool decays);

  // grads: one per added tensor, in order of add(); undefined: skipped. Each is multiplied by grad_factor (of the norm
  // clip) on the way in and left as it was. The caller has made sure that they are finite.
  void step(const std::vector<Tensor>& grads, double lr, double grad_factor);

  size_t size() const { return slots_.size(); }
  // Moments as "m.<name>" and "v.<name>" (no copies), and the step count of each tensor that has them.
  NamedTensors tensors() const;
  base::Json steps() const;
  // Replaces moments and step counts; what `tensors` does not name starts anew. Errors: corruption for a name or shape
  // that does not belong to an added tensor, or a count without moments.
  void load(const NamedTensors& tensors, const base::Json& steps, const std::string& where);

 private:
  struct Slot {
    std::string name;
    Tensor master, m, v;
    bool decays = false;
    int64_t step = 0;
  };
  void update(Slot& slot, const Tensor& grad, double lr, double grad_factor);

  AdamWSettings settings_;
  std::vector<Slot> slots_;
};

}  // namespace actor
