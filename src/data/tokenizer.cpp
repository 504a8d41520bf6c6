// Encode: added tokens, then pre-tokenizer, then merges. Decode: bytes of all tokens, then UTF-8.
#include "data/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "data/byte_level.h"
#include "data/utf8.h"

namespace data {
namespace {

using base::Code;

constexpr size_t kMaxTextBytes = size_t{1} << 30;

std::array<int32_t, 256> byte_ids(const TokenizerFile& file) {
  std::array<int32_t, 256> ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = file.vocab.find(byte_to_char(static_cast<uint8_t>(byte)));
    ids[static_cast<size_t>(byte)] = found == file.vocab.end() ? -1 : found->second;
  }
  return ids;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  const std::filesystem::path config = file.parent_path() / "tokenizer_config.json";
  TokenizerConfig named;
  if (std::filesystem::exists(config)) {
    named = parse_tokenizer_config(base::read_file(config, kMaxTokenizerFileBytes), config.string());
  }
  return Tokenizer(parse_tokenizer_file(base::read_file(file, kMaxTokenizerFileBytes), file.string()), named,
                   file.string());
}

Tokenizer::Tokenizer(const TokenizerFile& file, const TokenizerConfig& config, const std::string& name)
    : name_(name),
      added_(file.added),
      pre_tokenizer_(file.pre_tokenizer, name + ", pre_tokenizer"),
      bpe_(byte_ids(file), file.merges, name) {
  const auto put = [&](const std::string& text, int32_t id, bool special) {
    if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
    tokens_[static_cast<size_t>(id)] = {text, from_byte_level(text).value_or(text), true, special};
    ids_[text] = id;
  };
  for (const auto& [text, id] : file.vocab) {
    put(text, id, false);
    if (file.ignore_merges) whole_pieces_.emplace(bytes_of(id), id);
  }
  for (const AddedToken& token : file.added) {
    if (file.ignore_merges && file.vocab.contains(token.content)) whole_pieces_.erase(std::string(bytes_of(token.id)));
    put(token.content, token.id, token.special);
  }
  for (const int32_t id : byte_ids(file)) num_bytes_without_token_ += id < 0;
  const auto named = [&](const std::optional<std::string>& text) {
    return text ? std::optional<int32_t>(find_or_fail(*text)) : std::nullopt;
  };
  bos_id_ = named(config.bos);
  eos_id_ = named(config.eos);
  pad_id_ = named(config.pad);
  if (eos_id_) stop_ids_.push_back(*eos_id_);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Markers markers) const {
  const ByteRange whole{0, text.size()};
  return encode(text, std::span(&whole, markers == Markers::as_text ? 1 : 0));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::span<const ByteRange> literal) const {
  if (text.size() > kMaxTextBytes) {
    base::fail(Code::invalid_argument, "{}: a text of {} bytes is more than can be encoded at once ({})", name_,
               text.size(), kMaxTextBytes);
  }
  if (const size_t bad = find_invalid_utf8(text); bad < text.size()) {
    base::fail(Code::invalid_argument, "{}: the text to encode is not UTF-8 at byte {} (0x{:02x})", name_, bad,
               static_cast<uint8_t>(text[bad]));
  }
  std::vector<int32_t> ids;
  size_t open = 0;  // where the text without markers that is not yet encoded begins
  const auto take_markers = [&](ByteRange range) {
    for (const AddedTokenMatch& match : added_.find(text, range)) {
      encode_plain(text.substr(open, match.range.begin - open), ids);
      ids.push_back(match.id);
      open = match.range.end;
    }
  };
  size_t at = 0;
  for (const ByteRange& range : literal) {
    CHECK(range.begin >= at && range.begin <= range.end && range.end <= text.size(), "[{}, {}) after {} in {} bytes",
          range.begin, range.end, at, text.size());
    take_markers({at, range.begin});
    at = range.end;
  }
  take_markers({at, text.size()});
  encode_plain(text.substr(open), ids);
  return ids;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  const Pieces pieces = pre_tokenizer_.split(text);
  for (const ByteRange& range : pieces.ranges) {
    const std::string_view piece = std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    if (!whole_pieces_.empty()) {
      const auto whole = whole_pieces_.find(std::string(piece));
      if (whole != whole_pieces_.end()) {
        ids.push_back(whole->second);
        continue;
      }
    }
    bpe_.encode(piece, ids);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const Token& token = at(id);
    if (!skip_special || !token.special) bytes += token.bytes;
  }
  std::string text;
  append_lossy(bytes, /*at_end=*/true, text);
  return text;
}

const Tokenizer::Token& Tokenizer::at(int64_t id) const {
  if (!has_token(id)) {
    base::fail(Code::invalid_argument, "{}: the id {} has no token (ids reach to {})", name_, id, vocab_size() - 1);
  }
  return tokens_[static_cast<size_t>(id)];
}

std::string_view Tokenizer::bytes_of(int32_t id) const { return at(id).bytes; }

bool Tokenizer::has_token(int64_t id) const {
  return id >= 0 && id < vocab_size() && tokens_[static_cast<size_t>(id)].present;
}

bool Tokenizer::is_special(int64_t id) const { return has_token(id) && tokens_[static_cast<size_t>(id)].special; }

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

int32_t Tokenizer::find_or_fail(std::string_view token) const {
  if (const std::optional<int32_t> id = find(token)) return *id;
  base::fail(Code::not_found, "{}: the vocabulary has no token \"{}\"", name_, token);
}

const std::string& Tokenizer::token(int32_t id) const { return at(id).text; }

std::vector<int32_t> Tokenizer::ids_without_token(int64_t model_vocab_size) const {
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < model_vocab_size; ++id) {
    if (!has_token(id)) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

void Tokenizer::check_ids(std::span<const int32_t> ids, std::string_view what) const {
  for (const int32_t id : ids) {
    if (has_token(id)) continue;
    base::fail(Code::invalid_argument,
               "{}: the id {} has no token in {} (ids reach to {}); was it taken from another tokenizer?", what, id,
               name_, vocab_size() - 1);
  }
}

std::string StreamingDecoder::push(int32_t id) {
  const std::string_view bytes = tokenizer_.bytes_of(id);
  std::string text;
  if (skip_special_ && tokenizer_.is_special(id)) return text;
  held_ += bytes;
  held_.erase(0, append_lossy(held_, /*at_end=*/false, text));
  return text;
}

std::string StreamingDecoder::finish() {
  std::string text;
  append_lossy(held_, /*at_end=*/true, text);
  held_.clear();
  return text;
}

}  // namespace data
