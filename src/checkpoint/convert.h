// A model folder in another form: other number formats, other names, other shards. Piece by piece: memory does not grow
// with the model, but for the headers. Interrupted at any moment, it goes on at the first shard that is not there, and
// ends in the same bytes.
//
// OUT appears whole, and verified. Until then everything is in OUT.partial: each shard under its own name once it is
// complete, and convert_state.json, which says from what and how the folder is made.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/save.h"
#include "checkpoint/verify.h"

namespace checkpoint {

enum class Names { native, hf };  // hf: to_hf of checkpoint/names.h

struct ConvertOptions {
  std::string to = "bf16";  // a precision profile: the form in which it stores each parameter
  Names names = Names::native;
  int64_t shard_bytes = kShardBytes;  // of tensors in one file; a larger tensor has a file of its own
  bool resume = false;                // go on with OUT.partial, if it is there
};

struct ConvertProgress {
  enum class Stage { convert, verify } stage = Stage::convert;
  int64_t done = 0, total = 0;  // bytes written; values compared
  size_t shard = 0, num_shards = 0;
};
// Called after each piece, a few times a second. false: stop; what is complete stays.
using SeeProgress = std::function<bool(const ConvertProgress&)>;

struct Converted {
  bool complete = true;                      // false: stopped; the unfinished folder can be resumed
  std::filesystem::path unfinished;          // OUT.partial
  int64_t bytes = 0;                         // of all tensors written
  size_t num_files = 0, num_files_kept = 0;  // kept: were there already when it was resumed
  int64_t requantised = 0, kept = 0;         // parameters quantised here; codes and scales taken over as they are
  Verified verified;
};

// Forms: a parameter that is stored in the wanted block format already keeps its codes and scales (f32 scales of Base
// checkpoints too); e2m1 becomes e4m3 without loss (spec 6.4) or not at all; what else becomes codes is quantised from
// its bf16 value (decisions 4). tid2eid becomes int64.
//
// config.json goes along with what it says about forms changed; so do tokenizer files, generation config, chat
// templates and licence.
//
// Errors: those of StoredWeights and read; invalid_argument when OUT or, without resume, OUT.partial is there; when
// OUT.partial was made from other files or with other options; e2m1 that e4m3 can't hold; unavailable when the disk is
// too full; corruption when the result differs from the input by more than the forms explain, or holds infinities.
Converted convert(const std::filesystem::path& in, const std::filesystem::path& out, const ConvertOptions& options,
                  const SeeProgress& see);

}  // namespace checkpoint
