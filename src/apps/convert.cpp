// furlong convert: a model folder in other number formats, under other names, in other shards.
#include "checkpoint/convert.h"

#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "apps/standard_io.h"
#include "apps/terminal.h"
#include "base/log.h"
#include "base/stop.h"

namespace apps {
namespace {

using checkpoint::Converted;
using checkpoint::ConvertProgress;

const Usage kUsage = {
    "convert", "IN OUT",
    "Writes the model folder IN, in any layout that Furlong reads, as the model folder OUT, in the layout asked for. "
    "Works piece by piece: memory does not grow with the model. At the end both are read again and compared value by "
    "value; OUT appears when it is whole and right.\n"
    "  f32      every parameter in f32\n"
    "  bf16     bf16, and f32 for what the published checkpoints keep in f32\n"
    "  fp8      e4m3 in blocks of 128 x 128 for linear layers and experts, the rest as bf16\n"
    "  fp8_fp4  the published mixed layout: as fp8, routed experts e2m1 in groups of 32\n"
    "Weights that are in the wanted format keep their bytes; e2m1 becomes e4m3 without loss or not at all; other "
    "weights "
    "are quantised from their bf16 values. tokenizer files, generation_config.json and licence go along, sub-folders "
    "don't.\n"
    "Stopped by Ctrl-C or a crash, the conversion goes on with --resume, and ends in the same bytes. Until it is done, "
    "everything is in OUT.partial.",
    2, 2};

struct Options {
  std::string to = "bf16", names = "native";
  int64_t shard_bytes = checkpoint::kShardBytes;
  bool resume = false;

  template <class V>
  void visit(V&& v) {
    v("to", to, "layout", base::OneOf{"f32", "bf16", "fp8", "fp8_fp4"});
    v("names", names,
      "native: DeepSeek's, which transformers and engines read; hf: the HF-style names of serving engines and Miles, "
      "experts one by one, scales as weight_scale_inv",
      base::OneOf{"native", "hf"});
    v("shard_bytes", shard_bytes, "bytes of tensors in one file, at most; a tensor that is larger has its own file",
      base::Range{1, 1e15});
    v("resume", resume, "go on with OUT.partial, if it is there");
  }
};

// One bar for writing, one for comparing.
class Bars {
 public:
  void see(const ConvertProgress& progress) {
    const bool writes = progress.stage == ConvertProgress::Stage::convert;
    const int64_t unit = writes ? 1 << 20 : 1'000'000;
    if (!phase_ || stage_ != progress.stage) {
      phase_.reset();
      phase_.reset(new report::Console::Phase(writes
                                                  ? console_.phase("convert", progress.total / unit, "MiB")
                                                  : console_.phase("verify", progress.total / unit, "million values")));
      stage_ = progress.stage;
    }
    phase_->update(progress.done / unit, progress.total / unit,
                   writes ? fmt::format("file {} of {}", progress.shard, progress.num_shards) : "");
  }

 private:
  report::Console console_{{}, standard_error()};
  std::unique_ptr<report::Console::Phase> phase_;
  ConvertProgress::Stage stage_ = ConvertProgress::Stage::convert;
};

void write_result(const Converted& done, const std::string& out) {
  write_line(fmt::format("{}: {} bytes of tensors in {} file(s)", out, done.bytes, done.num_files));
  if (done.num_files_kept > 0) write_line(fmt::format("  {} file(s) were there from before", done.num_files_kept));
  if (done.kept > 0) write_line(fmt::format("  {} weights kept their codes and scales", done.kept));
  if (done.requantised > 0) write_line(fmt::format("  {} weights got new codes and scales", done.requantised));
  const auto& [equal, rounded, quantised, complete] = done.verified;
  write_line(fmt::format("verified, every value of both folders read again:\n  {} parameters equal", equal.tensors));
  if (rounded.tensors > 0) {
    write_line(
        fmt::format("  {} parameters rounded to bf16, relative error {:.2e}", rounded.tensors, rounded.relative_error));
  }
  if (quantised.tensors > 0) {
    write_line(
        fmt::format("  {} parameters quantised, relative error {:.2e}, each value within the bound of its format",
                    quantised.tensors, quantised.relative_error));
  }
}

// What to type to go on: the same call, with --resume.
std::string command_to_resume(const Call& call, const Options& options) {
  std::string command = call.program + " convert";
  for (const std::string& argument : call.arguments) command += " " + argument;
  return options.resume ? command : command + " --resume";
}

}  // namespace

int run_convert(const Call& call) {
  Options options;
  base::Fields fields = base::fields_of(options);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  apply_overrides(fields, line);

  const std::string out = line.positional[1];
  const base::StopSignals stop;
  Bars bars;
  const Converted done =
      checkpoint::convert(line.positional[0], out,
                          {options.to, options.names == "hf" ? checkpoint::Names::hf : checkpoint::Names::native,
                           options.shard_bytes, options.resume},
                          [&](const ConvertProgress& progress) {
                            bars.see(progress);
                            return !stop.requested();
                          });
  if (!done.complete) {
    fmt::print(stderr, "stopped; files that are complete stay in {}. To go on:\n  {}\n", done.unfinished.string(),
               command_to_resume(call, options));
    return stop.exit_code();
  }
  write_result(done, out);
  flush_output();
  return 0;
}

}  // namespace apps
