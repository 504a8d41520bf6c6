// The "pre_tokenizer" of tokenizer.json: cuts a text into the pieces inside which BPE merges. Knows the steps Split,
// Digits, ByteLevel and Sequence, as the tokenizers library defines them. Merging works on bytes, so the byte-level
// alphabet itself is not written out here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/split_regex.h"

namespace data {

// What a Split does with a match: a piece of its own, dropped, joined with the piece before or after it, or joined with
// neighbours of its own kind.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// Text and the pieces of it that remain, in order, none empty.
struct Pieces {
  std::string text;
  std::vector<ByteRange> ranges;
};

// Immutable: any thread may split with it.
class PreTokenizer {
 public:
  // spec: the value of "pre_tokenizer". The last step must be ByteLevel: other tokenizers are not byte-level BPE.
  // Error{invalid_argument}: a step or option that is not supported; Error{corruption}: wrong types, bad patterns.
  PreTokenizer(const base::Json& spec, const std::string& where);

  // text: valid UTF-8.
  Pieces split(std::string_view text) const;

 private:
  struct Step {
    SplitRegex regex;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
  };
  void add_step(const base::Json& spec, const std::string& where);
  void add_split(const base::Json& spec, const std::string& where);
  void add_byte_level(const base::Json& spec, const std::string& where);
  static std::vector<ByteRange> apply(const Step& step, const Pieces& pieces);

  std::vector<Step> steps_;   // before ByteLevel, then ByteLevel's own split if it has one
  size_t byte_level_at_ = 0;  // steps_ before ByteLevel
  bool has_byte_level_ = false, add_prefix_space_ = false;
};

}  // namespace data
