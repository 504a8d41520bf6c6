// Reading and checking, member by member.
#include "data/tokenizer_file.h"

#include "base/error.h"
#include "data/byte_level.h"
#include "data/json_fields.h"
#include "data/strict_json.h"

namespace data {
namespace {

using base::Code;
using base::Json;

int32_t checked_id(int64_t id, const std::string& token, const std::string& where) {
  if (id < 0 || id > kMaxTokenId) {
    base::fail(Code::corruption, "{}: token {} has id {}, outside 0..{}", where, quote(token), id, kMaxTokenId);
  }
  return static_cast<int32_t>(id);
}

// A member that must be absent, null or one of the harmless values; otherwise the file asks for something we do not do.
void refuse_unless(bool harmless, const Json& object, std::string_view key, const std::string& where) {
  const Json* const value = find_member(object, key, where);
  if (value == nullptr || value->is_null() || harmless) return;
  std::string text = base::to_line(*value);
  if (text.size() > 120) text.resize(120);
  base::fail(Code::invalid_argument, "{}: \"{}\" is {}, which is not supported", where, key, text);
}

void read_vocab(const Json& model, const std::string& where, TokenizerFile& file) {
  const Json& vocab = member(model, "vocab", where);
  if (!vocab.is_object())
    base::fail(Code::corruption, "{}: \"vocab\" is {} and should be an object", where, kind_of(vocab));
  std::unordered_map<int32_t, std::string_view> by_id;
  for (const auto& [token, id] : vocab.get_ref<const Json::object_t&>()) {
    if (!id.is_number_integer()) {
      base::fail(Code::corruption, "{}: the id of token {} is {} and should be an integer", where, quote(token),
                 kind_of(id));
    }
    const int32_t value = checked_id(
        id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX ? INT64_MAX : id.get<int64_t>(), token, where);
    const auto [other, is_new] = by_id.try_emplace(value, token);
    if (!is_new) {
      base::fail(Code::corruption, "{}: tokens {} and {} have the same id {}", where, quote(other->second),
                 quote(token), value);
    }
    file.vocab.emplace(token, value);
  }
}

// The two tokens of a merge, which stands as "a b" or, since tokenizers 0.20, as ["a", "b"].
std::pair<std::string_view, std::string_view> merge_texts(const Json& merge, size_t index, const std::string& where) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
        text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  base::fail(Code::corruption, "{}: merge {} is {} and should be \"a b\" or [\"a\", \"b\"]", where, index,
             base::to_line(merge).substr(0, 120));
}

void read_merges(const Json& model, const std::string& where, TokenizerFile& file) {
  const Json& merges = array_member(model, "merges", where);
  file.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = merge_texts(merges[i], i, where);
    const auto id_of = [&](const std::string& token) {
      const auto found = file.vocab.find(token);
      if (found != file.vocab.end()) return found->second;
      base::fail(Code::corruption, "{}: merge {} ({} + {}) needs the token {}, which is not in the vocabulary", where,
                 i, quote(left), quote(right), quote(token));
    };
    file.merges.push_back(
        {id_of(std::string(left)), id_of(std::string(right)), id_of(std::string(left) + std::string(right))});
  }
}

void read_model(const Json& root, const std::string& where, TokenizerFile& file) {
  const Json& model = member(root, "model", where);
  const std::string at = where + ", model";
  if (find_member(model, "type", at) != nullptr && text_member(model, "type", at) != "BPE") {
    base::fail(Code::invalid_argument, "{}: \"type\" is \"{}\"; only BPE is supported", at,
               text_member(model, "type", at));
  }
  const auto is = [&](std::string_view key, const Json& harmless) {
    const Json* const value = find_member(model, key, at);
    return value != nullptr && *value == harmless;
  };
  refuse_unless(is("dropout", 0.0), model, "dropout", at);
  refuse_unless(is("continuing_subword_prefix", ""), model, "continuing_subword_prefix", at);
  refuse_unless(is("end_of_word_suffix", ""), model, "end_of_word_suffix", at);
  refuse_unless(is("byte_fallback", false), model, "byte_fallback", at);
  file.ignore_merges = bool_member_or(model, "ignore_merges", false, at);
  read_vocab(model, at, file);
  read_merges(model, at, file);

  bool covers_all_bytes = true;  // then nothing is ever unknown, and unk_token has no effect
  for (int byte = 0; byte < 256; ++byte)
    covers_all_bytes &= file.vocab.contains(byte_to_char(static_cast<uint8_t>(byte)));
  refuse_unless(covers_all_bytes, model, "unk_token", at);
}

void read_added(const Json& root, const std::string& where, TokenizerFile& file) {
  const Json* const list = find_member(root, "added_tokens", where);
  if (list == nullptr || list->is_null()) return;
  if (!list->is_array())
    base::fail(Code::corruption, "{}: \"added_tokens\" is {} and should be an array", where, kind_of(*list));
  std::unordered_map<int32_t, std::string> by_id;
  for (const auto& [token, id] : file.vocab) by_id.emplace(id, token);
  std::unordered_map<std::string, int32_t> by_text;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const std::string at = fmt::format("{}, added_tokens[{}]", where, i);
    AddedToken token;
    token.content = text_member(entry, "content", at);
    if (token.content.empty()) base::fail(Code::corruption, "{}: \"content\" is empty", at);
    token.id = checked_id(integer_member(entry, "id", at), token.content, at);
    token.special = bool_member_or(entry, "special", false, at);
    token.normalized = bool_member_or(entry, "normalized", !token.special, at);
    for (const char* const key : {"single_word", "lstrip", "rstrip"}) {
      refuse_unless(!bool_member_or(entry, key, false, at), entry, key, at);
    }
    const auto [other, is_new] = by_id.try_emplace(token.id, token.content);
    if (!is_new && other->second != token.content) {
      base::fail(Code::corruption, "{}: the id {} of {} belongs to {} already", at, token.id, quote(token.content),
                 quote(other->second));
    }
    const auto in_vocab = file.vocab.find(token.content);
    if (in_vocab != file.vocab.end() && in_vocab->second != token.id) {
      base::fail(Code::corruption, "{}: {} has id {} here and {} in the vocabulary", at, quote(token.content), token.id,
                 in_vocab->second);
    }
    if (!by_text.emplace(token.content, token.id).second) {
      base::fail(Code::corruption, "{}: {} is listed twice", at, quote(token.content));
    }
    file.added.push_back(std::move(token));
  }
}

// Only what leaves text as it is.
void check_normalizer(const Json& root, const std::string& where) {
  const Json* const value = find_member(root, "normalizer", where);
  if (value == nullptr || value->is_null()) return;
  const std::string& type = text_member(*value, "type", where + ", normalizer");
  if (type == "Sequence" && array_member(*value, "normalizers", where + ", normalizer").empty()) return;
  base::fail(Code::invalid_argument, "{}: the normalizer \"{}\" is not supported; known: none, and an empty Sequence",
             where, type);
}

void check_decoder(const Json& root, const std::string& where) {
  const Json& value = member(root, "decoder", where);
  if (value.is_object() && text_member(value, "type", where + ", decoder") == "ByteLevel") return;
  base::fail(Code::invalid_argument, "{}: the decoder should be ByteLevel and is {}", where,
             base::to_line(value).substr(0, 120));
}

std::optional<std::string> named_token(const Json& root, std::string_view key, const std::string& where) {
  const Json* const value = find_member(root, key, where);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  return text_member(*value, "content", fmt::format("{}, {}", where, key));
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& where) {
  const Json root = parse_strict_json(text, where);
  TokenizerFile file;
  refuse_unless(false, root, "truncation", where);
  check_normalizer(root, where);
  check_decoder(root, where);
  read_model(root, where, file);
  read_added(root, where, file);
  file.pre_tokenizer = member(root, "pre_tokenizer", where);
  return file;
}

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where) {
  const Json root = parse_strict_json(text, where);
  return {named_token(root, "bos_token", where), named_token(root, "eos_token", where),
          named_token(root, "pad_token", where)};
}

}  // namespace data
