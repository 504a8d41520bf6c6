// Settings as text: the command line, JSON, help, and the comparison of a resumed run with the saved one.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/settings_tree.h"

namespace base {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The known name that a wrong one most likely meant; empty if none is near. A right key in the wrong section counts as
// one slip.
std::string nearest_name(Fields& fields, const std::string& name) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const Field& field : fields) {
    const bool same_key = last_part(field.name) == last_part(name);
    const size_t distance = same_key ? 1 : edit_distance(field.name, name);
    if (distance < best_distance) {
      best = field.name;
      best_distance = distance;
    }
  }
  return best;
}

Json number_from_text(const Field& field, std::string_view text) {
  if (field.kind == FieldKind::integer || field.kind == FieldKind::integers) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  } else {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  }
  return std::string(text);  // of the wrong kind: the assignment refuses it with the setting's own message
}

Json list_from_text(const Field& field, std::string_view text, const std::string& where) {
  if (!text.empty() && text.front() == '[') return parse_json(text, where);
  Json values = Json::array();
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    values.push_back(field.kind == FieldKind::integers ? number_from_text(field, part) : Json(std::string(part)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return values;
}

Json value_from_text(const Field& field, std::string_view text, const std::string& where) {
  switch (field.kind) {
    case FieldKind::boolean:
      if (text == "true" || text == "false") return text == "true";
      return std::string(text);
    case FieldKind::integer:
    case FieldKind::number:
      return number_from_text(field, text);
    case FieldKind::texts:
    case FieldKind::integers:
      return list_from_text(field, text, where);
    default:
      return std::string(text);
  }
}

// "list.3.field" -> 3, when name goes on after the list's own name with a number and a dot.
bool element_index(const Field& field, const std::string& name, size_t& index) {
  if (field.kind != FieldKind::list || !name.starts_with(field.name + ".")) return false;
  const char* const first = name.data() + field.name.size() + 1;
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), index);
  return error == std::errc() && end != name.data() + name.size() && *end == '.';
}

void override_named(Fields& fields, const std::string& name, const std::string* text, const std::string& where) {
  for (Field& field : fields) {
    size_t index = 0;
    if (field.name == name) {
      if (text == nullptr && field.kind != FieldKind::boolean) {
        fail(Code::invalid_argument, "{}: needs a value: --{}=... ({})", where, name, field.help);
      }
      return assign_value(field, text == nullptr ? Json(true) : value_from_text(field, *text, where), where);
    }
    if (!element_index(field, name, index)) continue;
    if (index > field.list->size()) {
      fail(Code::invalid_argument, "{}: {} has {} elements; the next index is {}", where, field.name,
           field.list->size(), field.list->size());
    }
    if (index == field.list->size()) field.list->resize(index + 1);
    Fields element = field.list->fields(index, fmt::format("{}.{}", field.name, index));
    return override_named(element, name, text, where);
  }
  fail_unknown_setting(fields, name, where);
}

// A place in a nested object for a dotted name below prefix.
Json& slot(Json& root, std::string_view name) {
  Json* at = &root;
  for (;;) {
    const size_t dot = name.find('.');
    at = &(*at)[std::string(name.substr(0, dot))];
    if (dot == std::string_view::npos) return *at;
    name.remove_prefix(dot + 1);
  }
}

Json to_json_below(Fields& fields, size_t prefix_size) {
  Json root = Json::object();
  for (Field& field : fields) {
    Json& place_of = slot(root, std::string_view(field.name).substr(prefix_size));
    if (field.kind == FieldKind::section) {
      place_of = Json::object();
    } else if (field.kind == FieldKind::list) {
      place_of = Json::array();
      for (size_t i = 0; i < field.list->size(); ++i) {
        const std::string prefix = fmt::format("{}.{}", field.name, i);
        Fields element = field.list->fields(i, prefix);
        place_of.push_back(to_json_below(element, prefix.size() + 1));
      }
    } else {
      place_of = value_of(field);
    }
  }
  return root;
}

std::string range_text(const Field& field) {
  if (!field.allowed.empty()) return fmt::format("one of {}", fmt::join(field.allowed, " | "));
  const bool low = std::isfinite(field.range.low), high = std::isfinite(field.range.high);
  if (low && high) return fmt::format("{} to {}", field.range.low, field.range.high);
  if (low) return fmt::format("at least {}", field.range.low);
  if (high) return fmt::format("at most {}", field.range.high);
  return {};
}

const char* kind_text(FieldKind kind) {
  switch (kind) {
    case FieldKind::boolean:
      return "true|false";
    case FieldKind::integer:
      return "INTEGER";
    case FieldKind::number:
      return "NUMBER";
    case FieldKind::text:
      return "TEXT";
    case FieldKind::texts:
      return "TEXT,TEXT,...";
    case FieldKind::integers:
      return "INTEGER,INTEGER,...";
    default:
      return "";
  }
}

// Flat: every field of a nested object under its dotted name; lists stay whole.
void flatten(const Json& json, const std::string& prefix, std::vector<std::pair<std::string, Json>>& flat) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : fmt::format("{}.{}", prefix, key);
    if (value.is_object())
      flatten(value, name, flat);
    else
      flat.emplace_back(name, value);
  }
}

}  // namespace

std::string_view last_part(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::string_view parent_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::string toml_value(const Json& value) {
  if (value.is_string()) {
    std::string text = value.dump();  // JSON's escapes are TOML's, but for DEL
    for (size_t at = text.find('\x7f'); at != std::string::npos; at = text.find('\x7f', at))
      text.replace(at, 1, "\\u007F");
    return text;
  }
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const Json& element : value) parts.push_back(toml_value(element));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (!value.is_number_float()) return value.dump();
  std::string text = fmt::format("{}", value.get<double>());  // the shortest text that reads back to the same bits
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void fail_unknown_setting(Fields& fields, const std::string& name, const std::string& where) {
  const std::string nearest = nearest_name(fields, name);
  const std::string hint = nearest.empty() ? "--help lists all of them" : fmt::format("did you mean \"{}\"?", nearest);
  fail(Code::invalid_argument, "{}: unknown setting \"{}\"; {}", where, name, hint);
}

void override_setting(Fields& fields, std::string_view argument) {
  const std::string where = fmt::format("command line: {}", argument);
  if (!argument.starts_with("--") || argument.size() == 2) {
    fail(Code::invalid_argument, "{}: a setting is written as --section.key=value", where);
  }
  argument.remove_prefix(2);
  const size_t equals = argument.find('=');
  const std::string name(argument.substr(0, equals));
  if (equals == std::string_view::npos) return override_named(fields, name, nullptr, where);
  const std::string text(argument.substr(equals + 1));
  override_named(fields, name, &text, where);
}

Json settings_to_json(Fields& fields) { return to_json_below(fields, 0); }

std::string settings_help(Fields& fields) {
  std::string text;
  for (Field& field : fields) {
    if (field.kind == FieldKind::section) {
      text += fmt::format("\n[{}] {}\n", field.name, field.help);
    } else if (field.kind == FieldKind::list) {
      text += fmt::format("\n[[{}]] {} (a list: N counts from 0)\n", field.name, field.help);
      const std::unique_ptr<FieldList> sample = field.list->one_default();
      Fields element = sample->fields(0, field.name + ".N");
      text += settings_help(element);
    } else {
      const std::string range = range_text(field);
      text += fmt::format("  --{}={}\n      {}\n      default {}{}{}{}\n", field.name, kind_text(field.kind),
                          field.help, toml_value(value_of(field)), range.empty() ? "" : "; ", range,
                          field.resume == Resume::harmless ? "; may change on resume" : "");
    }
  }
  return text;
}

std::vector<std::string> setting_names(Fields& fields) {
  std::vector<std::string> names;
  for (Field& field : fields) {
    if (field.kind == FieldKind::section) continue;
    if (field.kind != FieldKind::list) {
      names.push_back(field.name);
      continue;
    }
    const std::unique_ptr<FieldList> sample = field.list->one_default();
    Fields element = sample->fields(0, field.name + ".N");
    for (std::string& name : setting_names(element)) names.push_back(std::move(name));
  }
  return names;
}

std::vector<SettingChange> setting_changes(Fields& now, const Json& saved) {
  std::vector<std::pair<std::string, Json>> before, after;
  flatten(saved, "", before);
  flatten(settings_to_json(now), "", after);
  const auto find = [](const auto& flat, const std::string& name) {
    return std::find_if(flat.begin(), flat.end(), [&](const auto& entry) { return entry.first == name; });
  };
  std::vector<SettingChange> changes;
  for (const auto& [name, value] : after) {
    const auto old = find(before, name);
    if (old != before.end() && old->second == value) continue;
    const auto field =
        std::find_if(now.begin(), now.end(), [&, &wanted = name](const Field& x) { return x.name == wanted; });
    CHECK(field != now.end(), "{} is in the JSON but not among the fields", name);
    changes.push_back({name, old == before.end() ? Json() : old->second, value, field->resume});
  }
  for (const auto& [name, value] : before) {
    if (find(after, name) == after.end()) changes.push_back({name, value, Json(), Resume::alters});
  }
  return changes;
}

}  // namespace base
