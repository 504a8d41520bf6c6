// Counting over the visitor and over the stored tensors.
#include "checkpoint/inventory.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "checkpoint/pieces.h"

namespace checkpoint {
namespace {

using model::TensorInfo;

// Parts by what native names contain, the first that fits, and the place in which each is shown.
struct NamedPart {
  const char *fragment, *name;
};
constexpr NamedPart kParts[] = {
    {"tid2eid", "expert tables"},
    {"mtp.", "MTP block"},
    {".indexer.", "indexer"},
    {".compressor.", "compressor"},
    {".attn.", "attention"},
    {".experts.", "routed experts"},
    {".gate.", "router"},
    {".shared_experts.", "shared expert"},
    {"hc_", "hyper-connections"},
    {"embed", "embedding"},
    {"norm", "norms"},
    {"head", "head"},
};
constexpr const char* kShownOrder[] = {"embedding", "attention",      "compressor",    "indexer",
                                       "router",    "routed experts", "shared expert", "hyper-connections",
                                       "norms",     "head",           "MTP block",     "expert tables"};

void add(PartCount& to, const PartCount& count) {
  to.tensors += count.tensors;
  to.parameters += count.parameters;
  to.active += count.active;
  to.bytes += count.bytes;
}

PartCount count_of(const TensorInfo& info, const model::Config& config) {
  const int64_t copies = std::max<int64_t>(1, info.stack), one = num_values(info);
  return {part_of(info.name), copies, copies * one, (info.stack > 0 ? config.num_experts_per_tok : 1) * one, 0};
}

// The numbers of a name in order, and the name with {} in their place: "layers.3.ffn.experts.7.w1.weight" -> 3, 7.
std::pair<std::string, std::vector<int64_t>> without_numbers(const std::string& name) {
  std::string pattern;
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, dot - at);
    const bool number = !part.empty() && part.size() < 10 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    pattern += number ? "{}" : part;
    if (number) numbers.push_back(std::stoll(part));
    if (dot < name.size()) pattern += '.';
    at = dot + 1;
  }
  return {pattern, numbers};
}

// Smallest and largest value of each number of a pattern.
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

void widen(Ranges& ranges, const std::vector<int64_t>& numbers) {
  if (ranges.empty()) ranges.assign(numbers.size(), {INT64_MAX, INT64_MIN});
  for (size_t i = 0; i < numbers.size(); ++i) {
    ranges[i] = {std::min(ranges[i].first, numbers[i]), std::max(ranges[i].second, numbers[i])};
  }
}

// A name of a stack has a {} of its own, behind the numbers; it stays.
std::string filled(const std::string& pattern, const Ranges& ranges) {
  std::string text;
  size_t from = 0;
  for (const auto& [low, high] : ranges) {
    const size_t at = pattern.find("{}", from);
    text +=
        pattern.substr(from, at - from) + (low == high ? std::to_string(low) : fmt::format("{{{}..{}}}", low, high));
    from = at + 2;
  }
  return text + pattern.substr(from);
}

}  // namespace

std::string part_of(const std::string& native) {
  const auto found = std::find_if(std::begin(kParts), std::end(kParts), [&](const NamedPart& part) {
    return native.find(part.fragment) != std::string::npos;
  });
  return found == std::end(kParts) ? "other" : found->name;
}

Parts count_parts(const model::Config& config, const StoredWeights* stored) {
  std::map<std::string, PartCount> by_name;
  model::Weights::describe(config).visit([&](const TensorInfo& info, const tensor::Tensor&) {
    const PartCount count = count_of(info, config);
    PartCount& part = by_name[count.part];
    part.part = count.part;
    add(part, count);
  });
  if (stored != nullptr) {
    for (const TableRow& row : tensor_table(stored->files())) {
      if (const auto at = by_name.find(row.part); at != by_name.end()) at->second.bytes += row.bytes;
    }
  }
  Parts result;
  result.model.part = "total";
  result.mtp.part = "MTP block";
  for (const char* name : kShownOrder) {
    const auto at = by_name.find(name);
    if (at == by_name.end()) continue;
    result.parts.push_back(at->second);
    if (at->first == "MTP block") {
      result.mtp = at->second;
    } else if (at->first != "expert tables") {
      add(result.model, at->second);
      if (at->first != "embedding") result.active_without_embedding += at->second.active;
    }
  }
  return result;
}

std::vector<FormatCount> count_formats(const tensor::SafetensorsFolder& files) {
  std::map<std::string, FormatCount> formats;
  for (const std::string& name : files.names()) {
    const tensor::StoredTensor& stored = files.stored(name);
    FormatCount& count = formats[tensor::dtype_name(stored.dtype)];
    ++count.tensors;
    count.bytes += stored.size_bytes();
  }
  std::vector<FormatCount> result;
  for (auto& [dtype, count] : formats) result.push_back({dtype, count.tensors, count.bytes});
  return result;
}

std::vector<TableRow> tensor_table(const tensor::SafetensorsFolder& files) {
  std::vector<TableRow> rows;
  rows.reserve(files.names().size());
  for (const std::string& name : files.names()) {
    const tensor::StoredTensor& stored = files.stored(name);
    const auto translation = to_native(name);
    TableRow row{name,
                 translation ? translation->native : "",
                 "",
                 tensor::dtype_name(stored.dtype),
                 stored.shape,
                 1,
                 stored.size_bytes(),
                 files.file_of(name).filename().string()};
    row.part = !translation ? "unknown" : translation->part == checkpoint::Part::copy ? "copy" : part_of(row.native);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<TableRow> folded(const std::vector<TableRow>& rows) {
  using Key = std::tuple<std::string, std::string, std::vector<int64_t>>;
  struct Group {
    TableRow row;
    std::string native_pattern;
    Ranges names, natives;
  };
  std::map<Key, size_t> index;
  std::vector<Group> groups;
  for (const TableRow& row : rows) {
    const auto [pattern, numbers] = without_numbers(row.name);
    const auto [native_pattern, native_numbers] = without_numbers(row.native);
    const auto [at, is_new] = index.try_emplace(Key{pattern, row.dtype, row.shape}, groups.size());
    if (is_new) {
      groups.push_back({row, native_pattern, {}, {}});
      groups.back().row.name = pattern;
    } else {
      TableRow& group = groups[at->second].row;
      ++group.tensors;
      group.bytes += row.bytes;
      if (group.file != row.file) group.file.clear();
    }
    widen(groups[at->second].names, numbers);
    widen(groups[at->second].natives, native_numbers);
  }
  std::vector<TableRow> result;
  for (Group& group : groups) {
    group.row.name = filled(group.row.name, group.names);
    group.row.native = filled(group.native_pattern, group.natives);
    result.push_back(std::move(group.row));
  }
  return result;
}

}  // namespace checkpoint
