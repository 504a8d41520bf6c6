// nlohmann-json escapes strings as Python does; separators and floats differ.
#include "data/python_json.h"

#include <fmt/format.h>

namespace data {
namespace {

using base::Json;

void write(const Json& json, std::string& out) {  // depth: at most what the parsers let in
  if (json.is_object()) {
    out += '{';
    const char* separator = "";
    for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
      out += separator;
      out += Json(key).dump() + ": ";
      write(value, out);
      separator = ", ";
    }
    out += '}';
  } else if (json.is_array()) {
    out += '[';
    const char* separator = "";
    for (const Json& value : json) {
      out += separator;
      write(value, out);
      separator = ", ";
    }
    out += ']';
  } else if (json.is_number_float()) {
    const std::string text =
        fmt::format("{}", json.get<double>());  // shortest digits; exponent from 1e16 and below 1e-4
    out += text;
    if (text.find_first_of(".e") == std::string::npos) out += ".0";
  } else {
    out += json.dump();
  }
}

}  // namespace

std::string to_python_json(const Json& json) {
  std::string out;
  write(json, out);
  return out;
}

}  // namespace data
