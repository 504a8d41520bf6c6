// A SAX handler of nlohmann-json that builds the document itself.
#include "data/strict_json.h"

#include <cmath>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/json_fields.h"

namespace data {
namespace {

using base::Code;
using base::Json;

constexpr size_t kMaxDepth = 256;
constexpr size_t kMaxQuoted = 160;  // bytes of a number or of the parser's words in a message

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) {
      base::fail(Code::invalid_argument,
                 "{}: the integer {} needs more than 64 bits and would lose digits; write it as a text", where_,
                 text.substr(0, kMaxQuoted));
    }
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      base::fail(Code::invalid_argument, "{}: the key {} stands twice in one object; which value is meant is not known",
                 where_, quote(value));
    }
    key_ = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const size_t at = position == 0 ? 0 : position - 1;  // position counts the bytes read
    std::string reason = error.what();
    if (const size_t colon = reason.find(": "); colon != std::string::npos) reason.erase(0, colon + 2);
    if (at < text_.size() && (text_.substr(at).starts_with("NaN") || text_.substr(at).starts_with("Infinity"))) {
      reason = "NaN and Infinity are not JSON";
    }
    base::fail(Code::corruption, "{}: byte {}: not valid JSON: {}", where_, at, reason.substr(0, 2 * kMaxQuoted));
  }

 private:
  // Where a value of the innermost open container goes. Appends without the search that ordered_map's own insertion
  // makes; key() has already seen to it that the key is new.
  template <class Value>
  Json* put(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->get_ref<Json::array_t&>();
      array.emplace_back(std::forward<Value>(value));
      return &array.back();
    }
    std::vector<std::pair<const std::string, Json>>& members = open_.back()->get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::forward<Value>(value));
    return &members.back().second;
  }

  template <class Value>
  bool add(Value&& value) {
    put(std::forward<Value>(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      base::fail(Code::invalid_argument, "{}: JSON is nested deeper than {} levels", where_, kMaxDepth);
    }
    open_.push_back(put(std::move(container)));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& where_;
  Json root_;
  std::string key_;
  std::vector<Json*>
      open_;  // containers from the root to the innermost; a container grows only while it is the innermost
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& where) {
  if (text.starts_with("\xEF\xBB\xBF")) {  // nlohmann-json would skip it
    base::fail(Code::corruption, "{}: byte 0: not valid JSON: a byte order mark", where);
  }
  Builder builder(text, where);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace data
