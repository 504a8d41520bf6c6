// furlong inspect: what a model folder holds, from its config and the headers of its files alone.
#include <filesystem>
#include <map>
#include <optional>

#include "apps/commands.h"
#include "apps/standard_io.h"
#include "base/json.h"
#include "checkpoint/inventory.h"
#include "tensor/text.h"

namespace apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::Differences;
using checkpoint::PartCount;
using checkpoint::TableRow;

const Usage kUsage = {
    "inspect", "MODEL",
    "Prints what a model folder (config.json, safetensors) holds: its tensors, stored formats and sizes, parameters by "
    "part of the model, and everything that is missing, unexpected or of another form than the config asks for (then "
    "the exit code is 1). Reads headers only.",
    1, 1};

struct InspectOptions {
  bool tensors = false, json = false;
  template <class V>
  void visit(V&& v) {
    v("tensors", tensors,
      "list every stored tensor; else those that differ in the numbers of layer and expert only are "
      "one line");
    v("json", json, "one JSON object, every tensor in it, instead of tables");
  }
};

// Everything there is to say.
struct Inspection {
  model::Config config;
  bool lacks_mtp = false;
  checkpoint::Parts parts;
  bool has_files = false;
  size_t num_files = 0;
  int64_t bytes = 0;
  std::vector<checkpoint::FormatCount> formats;
  std::vector<TableRow> tensors;
  Differences differences;
};

Inspection inspect(const fs::path& folder) {
  Inspection found;
  if (!fs::exists(folder / "model.safetensors") && !fs::exists(folder / "model.safetensors.index.json")) {
    found.config = model::Config::load(folder);
    found.parts = checkpoint::count_parts(found.config);
    return found;
  }
  const checkpoint::StoredWeights stored(folder);
  found.config = stored.config();
  found.lacks_mtp = stored.lacks_mtp();
  found.parts = checkpoint::count_parts(found.config, &stored);
  found.has_files = true;
  found.num_files = stored.files().files().size();
  found.formats = checkpoint::count_formats(stored.files());
  for (const checkpoint::FormatCount& format : found.formats) found.bytes += format.bytes;
  found.tensors = checkpoint::tensor_table(stored.files());
  found.differences = stored.differences();
  return found;
}

void write_config(const model::Config& config) {
  std::map<std::string, int> kinds;
  for (const model::LayerKind kind : config.layer_types) ++kinds[model::to_string(kind)];
  write_line(
      fmt::format("DeepSeek-V4, {} layers, hidden_size {}, vocab_size {}, {} of {} experts, {} hyper-connection "
                  "streams, context {}",
                  config.num_hidden_layers, config.hidden_size, config.vocab_size, config.num_experts_per_tok,
                  config.n_routed_experts, config.hc_mult, config.max_position_embeddings));
  for (const auto& [kind, count] : kinds) write_line(fmt::format("  {:>3} x {}", count, kind));
}

void write_tensors(const std::vector<TableRow>& rows) {
  size_t widest = 6;
  for (const TableRow& row : rows) widest = std::max(widest, row.name.size());
  write_line(fmt::format("\n{:<{}} {:>7} {:<8} {:<20} {:>15}  {}", "tensor", widest, "count", "stored", "shape",
                         "bytes", "native name, where it is another"));
  for (const TableRow& row : rows) {
    const std::string native = row.native.empty() ? "unknown" : row.native == row.name ? "" : row.native;
    write_line(fmt::format("{:<{}} {:>7} {:<8} {:<20} {:>15}  {}", row.name, widest, row.tensors, row.dtype,
                           tensor::shape_text(row.shape), row.bytes, native));
  }
}

void write_parts(const checkpoint::Parts& parts) {
  write_line(
      fmt::format("\n{:<28} {:>9} {:>18} {:>18} {:>18}", "part", "tensors", "parameters", "used by a token", "bytes"));
  const auto write = [](const PartCount& count) {
    write_line(fmt::format("{:<28} {:>9} {:>18} {:>18} {:>18}", count.part, count.tensors, count.parameters,
                           count.active, count.bytes));
  };
  for (const PartCount& count : parts.parts) write(count);
  PartCount total = parts.model;
  total.part = "total, no MTP, no tables";
  write(total);
  write_line(
      fmt::format("{:<28} {:>9} {:>18} {:>18}", "  without the embedding", "", "", parts.active_without_embedding));
}

void write_stored(const Inspection& found) {
  write_line(fmt::format("\n{:<28} {:>9} {:>18}", "stored as", "tensors", "bytes"));
  for (const auto& [dtype, tensors, bytes] : found.formats)
    write_line(fmt::format("{:<28} {:>9} {:>18}", dtype, tensors, bytes));
  write_line(fmt::format("{:<28} {:>9} {:>18}", fmt::format("total, {} file(s)", found.num_files), found.tensors.size(),
                         found.bytes));
}

void write_differences(const Differences& differences) {
  if (differences.empty()) return write_line("\nevery tensor of the config is there, in its shape, and no other");
  const auto write = [](const char* kind, const std::vector<std::string>& list) {
    if (list.empty()) return;
    write_line(fmt::format("\n{} {}:", list.size(), kind));
    for (const std::string& entry : list) write_line("  " + entry);
  };
  write("missing", differences.missing);
  write("unexpected", differences.unexpected);
  write("there twice", differences.twice);
  write("of another form", differences.wrong);
}

base::Json part_json(const PartCount& count) {
  return {{"part", count.part},
          {"tensors", count.tensors},
          {"parameters", count.parameters},
          {"active", count.active},
          {"bytes", count.bytes}};
}

base::Json to_json(const Inspection& found) {
  base::Json json = {{"config", found.config.to_json()}, {"parts", base::Json::array()}};
  for (const PartCount& count : found.parts.parts) json["parts"].push_back(part_json(count));
  json["totals"] = {{"parameters", found.parts.model.parameters},
                    {"active", found.parts.model.active},
                    {"active_without_embedding", found.parts.active_without_embedding},
                    {"mtp_parameters", found.parts.mtp.parameters},
                    {"tensors", found.tensors.size()},
                    {"bytes", found.bytes},
                    {"files", found.num_files}};
  json["formats"] = base::Json::array();
  for (const auto& [dtype, tensors, bytes] : found.formats)
    json["formats"].push_back({{"dtype", dtype}, {"tensors", tensors}, {"bytes", bytes}});
  json["tensors"] = base::Json::array();
  for (const TableRow& row : found.tensors) {
    json["tensors"].push_back({{"name", row.name},
                               {"native", row.native.empty() ? base::Json() : base::Json(row.native)},
                               {"part", row.part},
                               {"dtype", row.dtype},
                               {"shape", row.shape},
                               {"bytes", row.bytes},
                               {"file", row.file}});
  }
  const Differences& differences = found.differences;
  json["has_weights"] = found.has_files;
  json["fits"] = found.has_files && differences.empty();
  json["missing"] = differences.missing;
  json["unexpected"] = differences.unexpected;
  json["twice"] = differences.twice;
  json["of_another_form"] = differences.wrong;
  return json;
}

void write_tables(const Inspection& found, bool every_tensor) {
  write_config(found.config);
  if (found.lacks_mtp) write_line("the config has an MTP block, the files have none: it is left out");
  if (found.has_files) write_tensors(every_tensor ? found.tensors : checkpoint::folded(found.tensors));
  write_parts(found.parts);
  if (!found.has_files) return write_line("\nno weights: the folder holds a config only");
  write_stored(found);
  write_differences(found.differences);
}

}  // namespace

int run_inspect(const Call& call) {
  InspectOptions options;
  base::Fields fields = base::fields_of(options);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  apply_overrides(fields, line);

  const Inspection found = inspect(line.positional.front());
  if (options.json) {
    write_line(base::to_line(to_json(found)));
  } else {
    write_tables(found, options.tensors);
  }
  flush_output();
  return found.differences.empty() ? 0 : 1;
}

}  // namespace apps
