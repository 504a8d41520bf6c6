// furlong inspect: what a model folder holds, from its config and the headers of its files alone.
#include <algorithm>
#include <filesystem>
#include <map>

#include "apps/commands.h"
#include "apps/standard_io.h"
#include "base/log.h"
#include "checkpoint/stored_weights.h"
#include "model/config.h"
#include "model/weights.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace apps {
namespace {

namespace fs = std::filesystem;

const Usage kUsage = {
    "inspect", "MODEL",
    "Prints what a model folder (config.json, safetensors) holds: parameters by part, stored formats and sizes, and "
    "whatever is missing, "
    "unexpected or of another shape than the config asks for (then the exit code is 1). Reads headers only.",
    1, 1};

struct InspectOptions {
  bool tensors = false;
  template <class V>
  void visit(V&& v) {
    v("tensors", tensors, "list every stored tensor with its format, shape, size and native name");
  }
};

// Parts of the model by what their native names contain; the first that fits.
struct Part {
  const char *fragment, *name;
};
constexpr Part kParts[] = {
    {"tid2eid", "expert tables (not learned)"},
    {"mtp.", "MTP block"},
    {".indexer.", "indexer"},
    {".compressor.", "compressors"},
    {".attn.", "attention"},
    {".experts.", "routed experts"},
    {".shared_experts.", "shared expert"},
    {".gate.", "router"},
    {"hc_", "hyper-connections"},
    {"embed", "embedding"},
    {"norm", "norms"},
    {"head", "head"},
};

const char* part_of(const std::string& name) {
  const auto found = std::find_if(std::begin(kParts), std::end(kParts),
                                  [&](const Part& part) { return name.find(part.fragment) != std::string::npos; });
  return found == std::end(kParts) ? "other" : found->name;
}

int64_t num_values(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

struct Count {
  int64_t tensors = 0, values = 0, active = 0;

  void add(const Count& other) {
    tensors += other.tensors;
    values += other.values;
    active += other.active;
  }
};

Count count_of(const model::TensorInfo& info, const model::Config& config) {
  const int64_t copies = std::max<int64_t>(1, info.stack), one = num_values(info.shape);
  return {copies, copies * one, (info.stack > 0 ? config.num_experts_per_tok : 1) * one};
}

void write_parts(const model::Weights& described) {
  std::map<std::string, Count> parts;
  Count total;
  described.visit([&](const model::TensorInfo& info, const tensor::Tensor&) {
    const Count count = count_of(info, described.config);
    parts[part_of(info.name)].add(count);
    if (info.stored_as != model::StoredAs::i64) total.add(count);
  });
  write_line(fmt::format("\n{:<28} {:>9} {:>18} {:>18}", "part", "tensors", "parameters", "used by a token"));
  const auto write = [](const std::string& name, const Count& count) {
    write_line(fmt::format("{:<28} {:>9} {:>18} {:>18}", name, count.tensors, count.values, count.active));
  };
  for (const auto& [name, count] : parts) write(name, count);
  write("total, without tables", total);
}

void write_config(const model::Config& config) {
  std::vector<std::string> layers;
  for (const model::LayerKind kind : config.layer_types) layers.push_back(model::to_string(kind));
  std::map<std::string, int> kinds;
  for (const std::string& kind : layers) ++kinds[kind];
  write_line(
      fmt::format("DeepSeek-V4, {} layers, hidden_size {}, vocab_size {}, {} of {} experts, {} hyper-connection "
                  "streams, context {}",
                  config.num_hidden_layers, config.hidden_size, config.vocab_size, config.num_experts_per_tok,
                  config.n_routed_experts, config.hc_mult, config.max_position_embeddings));
  for (const auto& [kind, count] : kinds) write_line(fmt::format("  {:>3} x {}", count, kind));
}

void write_stored(const tensor::SafetensorsFolder& files, bool list) {
  std::map<std::string, std::pair<int64_t, int64_t>> formats;  // tensors, bytes
  std::map<std::string, int64_t> num_in_file;
  int64_t total = 0;
  for (const std::string& name : files.names()) {
    const tensor::StoredTensor& stored = files.stored(name);
    auto& [count, bytes] = formats[tensor::dtype_name(stored.dtype)];
    ++count;
    bytes += stored.size_bytes();
    total += stored.size_bytes();
    ++num_in_file[files.file_of(name).filename().string()];
    if (!list) continue;
    const auto translation = checkpoint::to_native(name);
    const std::string native = !translation ? "unknown" : translation->native == name ? "" : translation->native;
    write_line(fmt::format("{:<60} {:<8} {:<20} {:>14} {}", name, tensor::dtype_name(stored.dtype),
                           tensor::shape_text(stored.shape), stored.size_bytes(), native));
  }
  write_line(fmt::format("\n{:<28} {:>9} {:>18}", "stored as", "tensors", "bytes"));
  for (const auto& [format, counts] : formats)
    write_line(fmt::format("{:<28} {:>9} {:>18}", format, counts.first, counts.second));
  write_line(fmt::format("{:<28} {:>9} {:>18}", fmt::format("total, {} file(s)", num_in_file.size()),
                         files.names().size(), total));
}

}  // namespace

int run_inspect(const Call& call) {
  InspectOptions options;
  base::Fields fields = base::fields_of(options);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  apply_overrides(fields, line);

  const fs::path folder = line.positional.front();
  model::Config config = model::Config::load(folder);
  write_config(config);
  if (!fs::exists(folder / "model.safetensors") && !fs::exists(folder / "model.safetensors.index.json")) {
    write_parts(model::Weights::describe(config));
    write_line("\nno weights: the folder holds a config only");
    flush_output();
    return 0;
  }
  const checkpoint::StoredWeights stored(folder);
  if (config.num_nextn_predict_layers > 0 && !stored.has_mtp()) {
    write_line("the config has an MTP block, the files have none: it is left out");
    config.num_nextn_predict_layers = 0;
  }
  const model::Weights described = model::Weights::describe(config);
  write_parts(described);
  write_stored(tensor::SafetensorsFolder(folder), options.tensors);
  flush_output();
  stored.check(described);  // throws one list of everything that does not fit
  write_line("\nevery tensor of the config is there, in its shape, and no other");
  flush_output();
  return 0;
}

}  // namespace apps
