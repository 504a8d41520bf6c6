// Text to token ids and back, by byte-level BPE as tokenizer.json describes it: the same ids and the same text as the
// tokenizers library gives (without its post-processor: markers such as the beginning of sentence are part of the text
// here). Immutable after loading: any thread may use it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/pre_tokenizer.h"
#include "data/tokenizer_file.h"

namespace data {

// Whether the texts of added tokens (<think>, role markers, ...) become their ids. Text that a user wrote is encoded
// with as_text, so that it can never turn into a marker.
enum class Markers { as_ids, as_text };

class Tokenizer {
 public:
  // path: tokenizer.json or the folder that holds it; tokenizer_config.json beside it names BOS, EOS and padding.
  // Errors: see parse_tokenizer_file; not_found.
  static Tokenizer load(const std::filesystem::path& path);
  // name: for messages.
  Tokenizer(const TokenizerFile& file, const TokenizerConfig& config, const std::string& name);

  // Error{invalid_argument}: text is not UTF-8 (with the offset) or has more than 1 GiB. An empty text has no ids.
  std::vector<int32_t> encode(std::string_view text, Markers markers) const;
  // As encode(text, as_ids), but no marker is recognised that touches a byte of literal (ascending, not overlapping
  // ranges of text). Pieces and merges cross the borders of the ranges, so without markers in them the ids are those of
  // the whole text.
  std::vector<int32_t> encode(std::string_view text, std::span<const ByteRange> literal) const;

  // Bytes that are not UTF-8 become U+FFFD. skip_special leaves out tokens marked "special" in the file.
  // Error{invalid_argument}: an id without a token.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // The bytes that an id stands for; may be a part of a character. Error as decode.
  std::string_view bytes_of(int32_t id) const;

  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }  // the largest id + 1
  bool has_token(int64_t id) const;
  bool is_special(int64_t id) const;                          // false for ids without a token
  std::optional<int32_t> find(std::string_view token) const;  // by its text as it stands in the file
  int32_t find_or_fail(std::string_view token) const;         // Error{not_found}
  const std::string& token(int32_t id) const;                 // the text as it stands in the file. Error as decode.
  // Ids below model_vocab_size that no text encodes to and no decode accepts: a model gives them logit -infinity
  // (decisions 8).
  std::vector<int32_t> ids_without_token(int64_t model_vocab_size) const;
  int num_bytes_without_token() const { return num_bytes_without_token_; }  // > 0: encode drops such bytes
  // Error{invalid_argument} naming what ("stop_token_ids") and the first id that has no token.
  void check_ids(std::span<const int32_t> ids, std::string_view what) const;

  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  std::optional<int32_t> pad_id() const { return pad_id_; }
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }  // the EOS, if there is one
  const std::string& name() const { return name_; }                   // the file it was loaded from

 private:
  struct Token {
    std::string text, bytes;
    bool present = false, special = false;
  };
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const;
  const Token& at(int64_t id) const;

  std::string name_;
  std::vector<Token> tokens_;  // by id
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<std::string, int32_t> whole_pieces_;  // with ignore_merges: bytes of a token -> id
  AddedTokenMatcher added_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  std::optional<int32_t> bos_id_, eos_id_, pad_id_;
  std::vector<int32_t> stop_ids_;
  int num_bytes_without_token_ = 0;
};

// Decodes ids as they arrive. Pieces never split a character; joined, with finish() at the end, they are what decode
// gives for all ids. For one sequence on one thread; the tokenizer must outlive it.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string push(int32_t id);  // what has become certain; may be empty
  std::string finish();          // an unfinished character as U+FFFD; empties the decoder

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string held_;  // at most 3 bytes: the beginning of a character
};

}  // namespace data
