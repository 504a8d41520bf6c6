// tokenizer.json (and tokenizer_config.json beside it) as plain values, checked: every id has one token and every token
// one id, every merge names known tokens, and what this code does not do is refused instead of ignored. Layout: the
// tokenizers library, versions 0.13 to 0.23.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "data/added_tokens.h"
#include "data/bpe.h"

namespace data {

struct TokenizerFile {
  std::unordered_map<std::string, int32_t> vocab;  // the BPE model's, spelled in the byte-level alphabet
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  base::Json pre_tokenizer;
  bool ignore_merges = false;  // a piece that is a token as a whole is not merged
};

constexpr int64_t kMaxTokenizerFileBytes = int64_t{256} << 20;
constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

// Errors name where and the member: corruption (not JSON, wrong types, ids that collide, merges of unknown tokens),
// invalid_argument (too large; a model, normalizer, decoder or option that is not supported).
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& where);

// The tokens that tokenizer_config.json names, if it does.
struct TokenizerConfig {
  std::optional<std::string> bos, eos, pad;
};
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where);

}  // namespace data
