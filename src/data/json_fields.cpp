// One place for the messages about wrong types.
#include "data/json_fields.h"

#include "base/error.h"

namespace data {
namespace {

using base::Code;
using base::Json;

[[noreturn]] void fail_type(const Json& json, std::string_view key, std::string_view wanted, const std::string& where) {
  base::fail(Code::corruption, "{}: \"{}\" is {} and should be {}", where, key, kind_of(json), wanted);
}

}  // namespace

std::string_view kind_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a text";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number with a fraction or exponent";
    default:
      return "binary";
  }
}

std::string quote(std::string_view text) {
  constexpr size_t kMaxBytes = 120;
  return base::to_line(Json(std::string(text.substr(0, kMaxBytes)) + (text.size() > kMaxBytes ? "..." : "")));
}

const Json* find_member(const Json& json, std::string_view key, const std::string& where) {
  if (!json.is_object()) base::fail(Code::corruption, "{}: is {} and should be an object", where, kind_of(json));
  for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& member(const Json& json, std::string_view key, const std::string& where) {
  const Json* const found = find_member(json, key, where);
  if (found == nullptr) base::fail(Code::corruption, "{}: \"{}\" is missing", where, key);
  return *found;
}

const std::string& text_member(const Json& json, std::string_view key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_string()) fail_type(value, key, "a text", where);
  return value.get_ref<const std::string&>();
}

int64_t integer_member(const Json& json, std::string_view key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_number_integer()) fail_type(value, key, "an integer", where);
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    base::fail(Code::corruption, "{}: \"{}\" is {}, beyond 64 signed bits", where, key, value.get<uint64_t>());
  }
  return value.get<int64_t>();
}

double number_member(const Json& json, std::string_view key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_number()) fail_type(value, key, "a number", where);
  return value.get<double>();
}

const Json& array_member(const Json& json, std::string_view key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_array()) fail_type(value, key, "an array", where);
  return value;
}

bool bool_member_or(const Json& json, std::string_view key, bool fallback, const std::string& where) {
  const Json* const value = find_member(json, key, where);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail_type(*value, key, "true or false", where);
  return value->get<bool>();
}

}  // namespace data
