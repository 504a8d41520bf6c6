// Before the first step: does what the run will hold fit into what this machine has left for it? At the end: what it
// did hold.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace controller {

// Where the kernel says how much there is; another root in tests.
struct MemorySources {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path own_cgroup = "/proc/self/cgroup";
  std::filesystem::path cgroup_root = "/sys/fs/cgroup";
  std::filesystem::path own_status = "/proc/self/status";
};

// Bytes: the least of MemAvailable and what each limit of the control groups around this process (v2 and v1) leaves,
// counting file cache that can be given back as free. Error{unavailable} if the kernel does not say.
int64_t available_memory_bytes(const MemorySources& sources = {});

// Bytes of memory that this process holds now, and the most that it ever held. 0 where the kernel does not say.
struct HeldMemory {
  int64_t now = 0, peak = 0;
};
HeldMemory held_memory(const MemorySources& sources = {});

// One part of what a run holds, and which setting makes it smaller.
struct MemoryPart {
  std::string what;  // "engine caches"
  int64_t bytes = 0;
  std::string lower;  // "rollout.engine.num_slots or rollout.engine.max_context"; empty: nothing but another model
};

// "12.3 GiB planned (actor 8.1, ...), 20.0 GiB available" for the console.
std::string describe_memory(const std::vector<MemoryPart>& parts, int64_t available_bytes);

// "memory: 2.51 GiB at the peak, 0.98 of the 2.56 GiB planned". held_bytes: without what the program took before the
// run.
std::string describe_peak(const std::vector<MemoryPart>& parts, int64_t held_bytes);

// Error{invalid_argument} if the sum is more than available: the parts from the largest down, each with its setting.
void check_memory(const std::vector<MemoryPart>& parts, int64_t available_bytes);

}  // namespace controller
