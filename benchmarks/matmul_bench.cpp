// Matrix products against what the machine can do: a loop of fused multiply-adds in registers and a read of memory,
// both measured in the same run, beside every figure. Arguments: parts to run (products, large, outer, small); none:
// all.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../benchmarks/matmul_bench.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains, `count` steps each; returns the number of multiplications and additions.
double fma_loop(int64_t count, float* out) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, out[0]), term = hn::Set(d, out[1]);
  // Twelve different starts, or the compiler keeps one chain for all.
  V a = hn::Set(d, out[2]), b = hn::Add(a, term), c = hn::Add(b, term), e = hn::Add(c, term);
  V f = hn::Add(e, term), g = hn::Add(f, term), h = hn::Add(g, term), i = hn::Add(h, term);
  V j = hn::Add(i, term), k = hn::Add(j, term), l = hn::Add(k, term), m = hn::Add(l, term);
  for (int64_t step = 0; step < count; ++step) {
    a = hn::MulAdd(a, factor, term), b = hn::MulAdd(b, factor, term), c = hn::MulAdd(c, factor, term);
    e = hn::MulAdd(e, factor, term), f = hn::MulAdd(f, factor, term), g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term), i = hn::MulAdd(i, factor, term), j = hn::MulAdd(j, factor, term);
    k = hn::MulAdd(k, factor, term), l = hn::MulAdd(l, factor, term), m = hn::MulAdd(m, factor, term);
  }
  a = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i)));
  out[2] = hn::GetLane(hn::Add(a, hn::Add(hn::Add(j, k), hn::Add(l, m))));
  return 24.0 * static_cast<double>(count) * static_cast<double>(hn::Lanes(d));
}

// Sum of the words at `data`, read as four streams; `bytes` is a multiple of 256.
uint32_t read_memory(const uint8_t* data, int64_t bytes) {
  const hn::CappedTag<uint32_t, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  const int64_t words = bytes / 16;
  const auto* in = reinterpret_cast<const uint32_t*>(data);
  for (int64_t i = 0; i < words; i += lanes) {
    a = hn::Add(a, hn::LoadU(d, in + i)), b = hn::Add(b, hn::LoadU(d, in + words + i));
    c = hn::Add(c, hn::LoadU(d, in + 2 * words + i)), e = hn::Add(e, hn::LoadU(d, in + 3 * words + i));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace HWY_NAMESPACE
}  // namespace bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bench {
namespace {

HWY_EXPORT(fma_loop);
HWY_EXPORT(read_memory);

using kernels::cpu::WeightFormat;
constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::e4m3, WeightFormat::e2m1};
constexpr const char* kNames[] = {"f32", "bf16", "e4m3", "e2m1"};

// Memory as tensors have it: on cache lines.
template <class T>
struct Aligned {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* data, size_t) { ::operator delete(data, std::align_val_t(64)); }
  bool operator==(const Aligned&) const { return true; }
};
using Floats = std::vector<float, Aligned<float>>;
using Bytes = std::vector<uint8_t, Aligned<uint8_t>>;

double clock_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The shortest of many calls over about `budget_s`: what the machine does while nothing else runs on its cores.
template <class F>
double best_s(double budget_s, const F& call) {
  const clockid_t clock = base::num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  double best = 1e9;
  const double end = clock_s(CLOCK_MONOTONIC) + budget_s;
  for (int i = 0; i < 5 || clock_s(CLOCK_MONOTONIC) < end; ++i) {
    const double begin = clock_s(clock);
    call();
    best = std::min(best, clock_s(clock) - begin);
  }
  return best;
}

// On all threads at once, one range each.
double peak_gflops(double budget_s) {
  const int threads = base::num_threads();
  std::vector<float> out(static_cast<size_t>(threads) * 64, 0.5f);
  const int64_t pieces = threads == 1 ? 1 : threads * 4;
  double flops = 0;
  const double s = best_s(budget_s, [&] {
    base::parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double done = HWY_DYNAMIC_DISPATCH(fma_loop)(100000 / pieces, out.data() + i % threads * 64);
        if (i == 0) flops = done * static_cast<double>(pieces);
      }
    });
  });
  return flops / s / 1e9;
}

constexpr int64_t kLargeBytes = 256 << 20;

double read_gbs(const Bytes& memory) {
  constexpr int64_t kPiece = 1 << 20;
  const double s = best_s(0.4, [&] {
    base::parallel_for(kLargeBytes / kPiece, 1, [&](int64_t begin, int64_t end) {
      volatile uint32_t sink =
          HWY_DYNAMIC_DISPATCH(read_memory)(memory.data() + begin * kPiece, (end - begin) * kPiece);
      (void)sink;
    });
  });
  return static_cast<double>(kLargeBytes) / s / 1e9;
}

// A weight of small numbers: neither zeros nor subnormals.
struct Weight {
  kernels::cpu::PackedMatrix packed;
  Bytes panels;
  Floats scales;

  Weight(WeightFormat format, int64_t n, int64_t k) {
    panels.resize(static_cast<size_t>(kernels::cpu::panel_bytes(format, n, k)));
    scales.assign(static_cast<size_t>(kernels::cpu::num_scales(format, n, k)), 1.0f);
    uint64_t state = 1;
    for (size_t i = 0; i < panels.size(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto random = static_cast<uint8_t>(state >> 56);
      // f32 and bf16: the byte with the exponent makes numbers from 0.5 to 2.
      const size_t top = format == WeightFormat::f32 ? 3 : 1, width = top + 1;
      if (format == WeightFormat::e4m3) {
        panels[i] = random & 0xB7;
      } else if (format == WeightFormat::e2m1) {
        panels[i] = random;
      } else {
        panels[i] = i % width == top ? ((random & 0x80) | 0x3F) : random;
      }
    }
    packed = {format, n, k, panels.data(), scales.data()};
  }
  int64_t bytes() const { return static_cast<int64_t>(panels.size() + scales.size() * sizeof(float)); }
};

struct Shape {
  int64_t n, k;
};

kernels::cpu::Product product_of(const Weight& weight, const Floats& x, Floats& y, int64_t m) {
  kernels::cpu::Product product;
  product.input = x.data();
  product.input_stride = weight.packed.k;
  product.output = y.data();
  product.output_stride = weight.packed.n;
  product.m = m;
  product.weight = weight.packed;
  return product;
}

Floats some_input(int64_t size) {
  Floats x(static_cast<size_t>(size));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 64 - 0.75f;
  return x;
}

// One line per format and shape: GFLOP/s (percent of the peak) for each M.
void products(const std::vector<WeightFormat>& formats) {
  constexpr Shape kShapes[] = {{2048, 512}, {512, 512}, {1024, 256}, {256, 512}, {128, 512}, {4096, 128}, {1024, 4096}};
  constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 256, 1024};
  for (const int threads : {1, 2}) {
    base::set_num_threads(threads);
    std::printf("\nproducts, %d thread%s: GFLOP/s (%% of the FMA loop beside it)\n%-5s %5s %5s", threads,
                threads > 1 ? "s" : "", "", "N", "K");
    for (const int64_t m : kRows) std::printf("      M=%-5ld", static_cast<long>(m));
    std::printf("\n");
    for (const WeightFormat format : formats) {
      for (const Shape& shape : kShapes) {
        const Weight weight(format, shape.n, shape.k);
        const double peak = peak_gflops(0.01);
        std::printf("%-5s %5ld %5ld", kNames[static_cast<int>(format)], static_cast<long>(shape.n),
                    static_cast<long>(shape.k));
        for (const int64_t m : kRows) {
          const Floats x = some_input(m * shape.k);
          Floats y(static_cast<size_t>(m * shape.n));
          const kernels::cpu::Product product = product_of(weight, x, y, m);
          const double s = best_s(0.02, [&] { kernels::cpu::multiply(product); });
          const double gflops = 2e-9 * static_cast<double>(m * shape.n * shape.k) / s;
          std::printf("  %6.1f %3.0f%%", gflops, 100 * gflops / peak);
        }
        std::printf("\n");
      }
    }
  }
}

// Weights that no cache holds.
void large(const std::vector<WeightFormat>& formats, const Bytes& memory) {
  for (const int threads : {1, 2}) {
    base::set_num_threads(threads);
    std::printf("\nlarge weights, K 4096, %d thread%s: GB/s of packed bytes (%% of the read of 256 MB beside it)\n",
                threads, threads > 1 ? "s" : "");
    for (const WeightFormat format : formats) {
      const int64_t k = 4096, n = kLargeBytes / kernels::cpu::panel_bytes(format, 16, k) * 16;
      const Weight weight(format, n, k);
      const double read = read_gbs(memory);
      std::printf("%-5s read %5.1f", kNames[static_cast<int>(format)], read);
      for (const int64_t m : {1, 2, 4}) {
        const Floats x = some_input(m * k);
        Floats y(static_cast<size_t>(m * n));
        const kernels::cpu::Product product = product_of(weight, x, y, m);
        const double s = best_s(0.4, [&] { kernels::cpu::multiply(product); });
        const double gbs = 1e-9 * static_cast<double>(weight.bytes()) / s;
        std::printf("   M=%ld %5.1f %3.0f%%", static_cast<long>(m), gbs, 100 * gbs / read);
      }
      std::printf("\n");
    }
  }
}

void outer() {
  constexpr Shape kShapes[] = {{2048, 512}, {512, 512}, {128, 256}, {64, 512}, {256, 64}, {1024, 4096}};
  constexpr int64_t kRows[] = {16, 64, 256, 1024, 4096};
  for (const int threads : {1, 2}) {
    base::set_num_threads(threads);
    std::printf("\nadd_outer, %d thread%s: GFLOP/s (%% of the FMA loop beside it)\n%5s %5s", threads,
                threads > 1 ? "s" : "", "N", "K");
    for (const int64_t m : kRows) std::printf("      M=%-5ld", static_cast<long>(m));
    std::printf("\n");
    for (const Shape& shape : kShapes) {
      const double peak = peak_gflops(0.01);
      std::printf("%5ld %5ld", static_cast<long>(shape.n), static_cast<long>(shape.k));
      for (const int64_t m : kRows) {
        const Floats dy = some_input(m * shape.n), x = some_input(m * shape.k);
        Floats out(static_cast<size_t>(shape.n * shape.k));
        kernels::cpu::OuterSum sum;
        sum.dy = dy.data();
        sum.dy_stride = sum.n = shape.n;
        sum.x = x.data();
        sum.x_stride = sum.k = shape.k;
        sum.m = m;
        sum.out = out.data();
        const double s = best_s(0.03, [&] { kernels::cpu::add_outer(sum); });
        const double gflops = 2e-9 * static_cast<double>(m * shape.n * shape.k) / s;
        std::printf("  %6.1f %3.0f%%", gflops, 100 * gflops / peak);
      }
      std::printf("\n");
    }
  }
}

// What one call costs where the weight is in the nearest cache.
void small(const std::vector<WeightFormat>& formats) {
  base::set_num_threads(1);
  std::printf("\nsmall products, M 1, one thread: nanoseconds a call\n");
  for (const Shape& shape : {Shape{16, 16}, Shape{64, 64}, Shape{128, 64}, Shape{64, 256}, Shape{128, 128}}) {
    std::printf("N %4ld K %4ld", static_cast<long>(shape.n), static_cast<long>(shape.k));
    for (const WeightFormat format : formats) {
      const Weight weight(format, shape.n, shape.k);
      const Floats x = some_input(shape.k);
      Floats y(static_cast<size_t>(shape.n));
      const kernels::cpu::Product product = product_of(weight, x, y, 1);
      const double s = best_s(0.02, [&] {
        for (int i = 0; i < 100; ++i) kernels::cpu::multiply(product);
      });
      std::printf("   %s %6.0f", kNames[static_cast<int>(format)], s * 1e7);
    }
    std::printf("\n");
  }
}

void run(const std::vector<std::string>& arguments) {
  const auto named = [&](const char* name) { return std::ranges::find(arguments, name) != arguments.end(); };
  std::vector<WeightFormat> formats;
  for (const WeightFormat format : kFormats) {
    if (named(kNames[static_cast<int>(format)])) formats.push_back(format);
  }
  const bool all_parts = arguments.size() == formats.size();
  if (formats.empty()) formats.assign(std::begin(kFormats), std::end(kFormats));
  const int threads = base::num_threads();
  double load = -1;
  getloadavg(&load, 1);
  std::printf("load average %.2f, %d cores\n", load, threads);
  for (const int count : {1, 2}) {
    base::set_num_threads(count);
    std::printf("FMA loop, %d thread%s: %.1f GFLOP/s\n", count, count > 1 ? "s" : "", peak_gflops(0.2));
  }
  if (all_parts || named("products")) products(formats);
  if (all_parts || named("outer")) outer();
  if (all_parts || named("small")) small(formats);
  if (all_parts || named("large")) large(formats, Bytes(kLargeBytes, 1));
  base::set_num_threads(threads);
  getloadavg(&load, 1);
  std::printf("\nload average at the end %.2f\n", load);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run({argv + 1, argv + argc});
  return 0;
}
#endif
