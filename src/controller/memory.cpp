// What the kernel says about memory, and the comparison with a plan.
#include "controller/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace controller {
namespace fs = std::filesystem;
using base::Code;
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Files of the kernel have no size to ask for: read line by line.
std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::optional<int64_t> number_in(std::string_view text) {
  const size_t digits = text.find_first_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + digits, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;  // v1 writes "no limit" as a number near 2^63, which fits
  return value;
}

// The number after `key` at the start of a line.
std::optional<int64_t> field(const fs::path& path, std::string_view key) {
  for (const std::string& line : lines_of(path)) {
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

// What one control group leaves; kNoLimit if it sets none.
int64_t left_in_group(const fs::path& folder, const char* limit_name, const char* usage_name, const char* cache_key) {
  const std::optional<int64_t> limit = field(folder / limit_name, "");
  const std::optional<int64_t> usage = field(folder / usage_name, "");
  if (!limit || !usage) return kNoLimit;  // "max", or no such file
  const int64_t cache = field(folder / "memory.stat", cache_key).value_or(0);
  return std::max<int64_t>(0, *limit - *usage + std::min(cache, *usage));
}

// The least of a group and of the groups around it, up to the root of the mount.
int64_t left_along(const fs::path& root, const std::string& group, const char* limit_name, const char* usage_name,
                   const char* cache_key) {
  int64_t left = left_in_group(root, limit_name, usage_name, cache_key);
  fs::path folder = root;
  for (const fs::path& part : fs::path(group).relative_path()) {
    folder /= part;
    left = std::min(left, left_in_group(folder, limit_name, usage_name, cache_key));
  }
  return left;
}

int64_t left_in_groups(const MemorySources& sources) {
  int64_t left = kNoLimit;
  for (const std::string& line : lines_of(sources.own_cgroup)) {  // "0::/path" (v2) or "7:memory:/path" (v1)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (kind.empty()) {
      left = std::min(left, left_along(sources.cgroup_root, group, "memory.max", "memory.current", "inactive_file "));
    } else if (kind == "memory") {
      left = std::min(left, left_along(sources.cgroup_root / "memory", group, "memory.limit_in_bytes",
                                       "memory.usage_in_bytes", "total_inactive_file "));
    }
  }
  return left;
}

int64_t total(const std::vector<MemoryPart>& parts) {
  int64_t sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

std::string size_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.3g} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

}  // namespace

int64_t available_memory_bytes(const MemorySources& sources) {
  const std::optional<int64_t> kib = field(sources.meminfo, "MemAvailable:");
  if (!kib) {
    base::fail(Code::unavailable, "{}: has no line MemAvailable, so nobody can say whether the run fits",
               sources.meminfo.string());
  }
  return std::min(*kib * 1024, left_in_groups(sources));
}

HeldMemory held_memory(const MemorySources& sources) {
  return {field(sources.own_status, "VmRSS:").value_or(0) * 1024,
          field(sources.own_status, "VmHWM:").value_or(0) * 1024};
}

std::string describe_peak(const std::vector<MemoryPart>& parts, int64_t held_bytes) {
  const int64_t planned = total(parts);
  return fmt::format("memory: {} at the peak, {:.2f} of the {} planned", size_text(held_bytes),
                     static_cast<double>(held_bytes) / static_cast<double>(std::max<int64_t>(planned, 1)),
                     size_text(planned));
}

std::string describe_memory(const std::vector<MemoryPart>& parts, int64_t available_bytes) {
  std::string list;
  for (const MemoryPart& part : parts) {
    if (!list.empty()) list += ", ";
    list += part.what + " " + size_text(part.bytes);
  }
  return fmt::format("memory: {} planned ({}), {} available", size_text(total(parts)), list,
                     size_text(available_bytes));
}

void check_memory(const std::vector<MemoryPart>& parts, int64_t available_bytes) {
  if (total(parts) <= available_bytes) return;
  std::vector<MemoryPart> sorted = parts;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  std::string list;
  for (const MemoryPart& part : sorted) {
    list += fmt::format("\n  {}: {}", part.what, size_text(part.bytes));
    if (!part.lower.empty()) list += fmt::format("; lower {}", part.lower);
  }
  base::fail(Code::invalid_argument, "the run needs about {} of memory and {} are available. Largest parts first:{}",
             size_text(total(parts)), size_text(available_bytes), list);
}

}  // namespace controller
