// First-fit decreasing, then levelling.
#include "data/packing.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace data {
namespace {

// Room left in each of some bins; finds the first bin with enough room in logarithmic time (a tree of maxima).
class Rooms {
 public:
  explicit Rooms(size_t max_bins) {
    while (leaves_ < max_bins) leaves_ *= 2;
    tree_.assign(2 * leaves_, 0);
  }
  size_t first_with(int64_t room) const {
    size_t node = 1;
    CHECK(tree_[node] >= room);
    while (node < leaves_) node = tree_[2 * node] >= room ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }
  void set(size_t bin, int64_t room) {
    size_t node = bin + leaves_;
    tree_[node] = room;
    while (node /= 2) tree_[node] = std::max(tree_[2 * node], tree_[2 * node + 1]);
  }
  int64_t get(size_t bin) const { return tree_[bin + leaves_]; }

 private:
  size_t leaves_ = 1;
  std::vector<int64_t> tree_;
};

void put(Microbatch& batch, int64_t sample, int64_t length) {
  batch.samples.push_back(sample);
  batch.num_tokens += length;
}

// order: samples by falling length.
std::vector<Microbatch> first_fit(std::span<const int64_t> lengths, const std::vector<int64_t>& order,
                                  int64_t max_tokens) {
  Rooms rooms(order.size());
  for (size_t bin = 0; bin < order.size(); ++bin) rooms.set(bin, max_tokens);
  std::vector<Microbatch> batches;
  for (const int64_t sample : order) {
    const int64_t length = lengths[static_cast<size_t>(sample)];
    const size_t bin = rooms.first_with(length);
    if (bin == batches.size()) batches.emplace_back();
    put(batches[bin], sample, length);
    rooms.set(bin, rooms.get(bin) - length);
  }
  return batches;
}

// The same samples in num_batches microbatches, longest first to the emptiest; nothing if one would exceed the budget.
std::optional<std::vector<Microbatch>> level(std::span<const int64_t> lengths, const std::vector<int64_t>& order,
                                             int64_t max_tokens, size_t num_batches) {
  std::vector<Microbatch> batches(num_batches);
  std::set<std::pair<int64_t, size_t>> by_fill;
  for (size_t i = 0; i < num_batches; ++i) by_fill.emplace(0, i);
  for (const int64_t sample : order) {
    const auto [fill, i] = *by_fill.begin();
    const int64_t length = lengths[static_cast<size_t>(sample)];
    if (fill + length > max_tokens) return std::nullopt;
    by_fill.erase(by_fill.begin());
    put(batches[i], sample, length);
    by_fill.emplace(fill + length, i);
  }
  return batches;
}

}  // namespace

std::vector<Microbatch> pack_microbatches(std::span<const int64_t> lengths, int64_t max_tokens, OverBudget policy) {
  if (max_tokens <= 0)
    base::fail(base::Code::invalid_argument, "a microbatch of {} tokens holds no sample", max_tokens);
  std::vector<Microbatch> batches;
  std::vector<int64_t> order;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto sample = static_cast<int64_t>(i);
    if (lengths[i] <= 0)
      base::fail(base::Code::invalid_argument, "sample {} has {} tokens and should have some", i, lengths[i]);
    if (lengths[i] <= max_tokens) {
      order.push_back(sample);
    } else if (policy == OverBudget::alone) {
      put(batches.emplace_back(), sample, lengths[i]);
    } else {
      base::fail(base::Code::invalid_argument,
                 "sample {} has {} tokens, more than the {} of a microbatch; raise the tokens per microbatch or "
                 "shorten answers",
                 i, lengths[i], max_tokens);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<Microbatch> fitted = first_fit(lengths, order, max_tokens);
  if (auto levelled = level(lengths, order, max_tokens, fitted.size())) fitted = std::move(*levelled);
  for (Microbatch& batch : fitted) batches.push_back(std::move(batch));
  for (Microbatch& batch : batches) std::sort(batch.samples.begin(), batch.samples.end());
  std::sort(batches.begin(), batches.end(), [](const auto& a, const auto& b) { return a.samples[0] < b.samples[0]; });
  return batches;
}

}  // namespace data
