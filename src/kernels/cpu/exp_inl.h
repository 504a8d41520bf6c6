// The exponential for kernels to inline. Compiled once per instruction set, as row_inl.h.
#if defined(FURLONG_KERNELS_CPU_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FURLONG_KERNELS_CPU_EXP_INL_H
#undef FURLONG_KERNELS_CPU_EXP_INL_H
#else
#define FURLONG_KERNELS_CPU_EXP_INL_H
#endif

#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

// For x <= 104. Highway's own makes 0 of NaN: a model that has broken down would go on with weights of zero.
template <class Tag>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<Tag> exp_keeping_nan(Tag d, hwy::HWY_NAMESPACE::Vec<Tag> x) {
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::IsNaN(x), x, hwy::HWY_NAMESPACE::Exp(d, x));
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
