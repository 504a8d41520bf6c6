// Collecting fields, and assigning to them with all checks.
#include "base/settings.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/settings_tree.h"

namespace base {

Field Collector::start(const char* name, const char* help) const {
  Field field;
  field.name = prefix_.empty() ? name : prefix_ + "." + name;
  field.help = help;
  return field;
}

void Collector::add(Field field, FieldKind kind, void* value) {
  CHECK(std::none_of(fields_.begin(), fields_.end(), [&](const Field& other) { return other.name == field.name; }),
        "two settings are named {}", field.name);
  field.kind = kind;
  field.value = value;
  fields_.push_back(std::move(field));
}

void Collector::add_section(Field section, Fields inner) {
  const Resume resume = section.resume;
  add(std::move(section), FieldKind::section, nullptr);
  for (Field& field : inner) {
    if (resume == Resume::harmless) field.resume = resume;
    fields_.push_back(std::move(field));
  }
}

namespace {

[[noreturn]] void fail_kind(const Field& field, const Json& value, const std::string& where,
                            std::string_view should_be) {
  const bool finite = !value.is_number_float() || std::isfinite(value.get<double>());
  const std::string was = finite ? to_line(value) : fmt::format("{}", value.get<double>());
  fail(Code::invalid_argument, "{}: {} = {}: should be {} ({})", where, field.name, was, should_be, field.help);
}

void check_range(const Field& field, double value, const std::string& where) {
  if (value >= field.range.low && value <= field.range.high) return;
  std::string should_be = fmt::format("from {} to {}", field.range.low, field.range.high);
  if (std::isinf(field.range.high)) should_be = fmt::format("{} or more", field.range.low);
  if (std::isinf(field.range.low)) should_be = fmt::format("{} or less", field.range.high);
  if (std::isnan(value) || (std::isinf(field.range.low) && std::isinf(field.range.high))) should_be = "a finite number";
  fail(Code::invalid_argument, "{}: {} = {}: should be {} ({})", where, field.name, value, should_be, field.help);
}

int64_t integer_from(const Field& field, const Json& value, const std::string& where) {
  if (!value.is_number_integer()) fail_kind(field, value, where, "a whole number");
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail_kind(field, value, where, "a whole number below 2^63");
  }
  const int64_t number = value.get<int64_t>();
  check_range(field, static_cast<double>(number), where);
  return number;
}

double number_from(const Field& field, const Json& value, const std::string& where) {
  if (!value.is_number()) fail_kind(field, value, where, "a number");
  const double number = value.get<double>();
  if (!std::isfinite(number)) fail_kind(field, value, where, "a finite number");
  check_range(field, number, where);
  return number;
}

std::string text_from(const Field& field, const Json& value, const std::string& where) {
  if (!value.is_string()) fail_kind(field, value, where, "a text");
  try {
    value.dump();
  } catch (const Json::exception&) {
    fail_kind(field, value, where, "valid UTF-8");
  }
  std::string text = value.get<std::string>();
  if (!field.allowed.empty() && std::find(field.allowed.begin(), field.allowed.end(), text) == field.allowed.end()) {
    fail_kind(field, value, where, fmt::format("one of \"{}\"", fmt::join(field.allowed, "\", \"")));
  }
  return text;
}

template <class T, class From>
void assign_each(Field& field, const Json& value, const std::string& where, const char* should_be, From from) {
  if (!value.is_array()) fail_kind(field, value, where, should_be);
  std::vector<T> values;
  for (const Json& element : value) values.push_back(from(field, element, where));
  *static_cast<std::vector<T>*>(field.value) = std::move(values);
}

void assign_list(Field& field, const SettingNode& node) {
  const bool empty_array = node.form == SettingNode::Form::value && node.value.is_array() && node.value.empty();
  if (node.form != SettingNode::Form::tables && !empty_array) {
    fail(Code::invalid_argument, "{}: {}: should be a list of tables, each written as [[{}]] ({})", node.where,
         field.name, field.name, field.help);
  }
  field.list->resize(0);
  field.list->resize(node.children.size());
  for (size_t i = 0; i < node.children.size(); ++i) {
    const std::string prefix = fmt::format("{}.{}", field.name, i);
    Fields element = field.list->fields(i, prefix);
    assign_tree(element, node.children[i], prefix + ".");
  }
}

SettingNode node_from_json(const Json& json, const std::string& where) {
  SettingNode node;
  node.where = where;
  if (json.is_object()) {
    node.form = SettingNode::Form::table;
    for (const auto& [key, value] : json.items()) {
      node.children.push_back(node_from_json(value, where));
      node.children.back().key = key;
    }
  } else if (json.is_array() && !json.empty() &&
             std::all_of(json.begin(), json.end(), [](const Json& x) { return x.is_object(); })) {
    node.form = SettingNode::Form::tables;
    for (const Json& element : json) node.children.push_back(node_from_json(element, where));
  } else {
    node.value = json;
  }
  return node;
}

}  // namespace

void assign_value(Field& field, const Json& value, const std::string& where) {
  switch (field.kind) {
    case FieldKind::boolean:
      if (!value.is_boolean()) fail_kind(field, value, where, "true or false");
      *static_cast<bool*>(field.value) = value.get<bool>();
      return;
    case FieldKind::integer:
      *static_cast<int64_t*>(field.value) = integer_from(field, value, where);
      return;
    case FieldKind::number:
      *static_cast<double*>(field.value) = number_from(field, value, where);
      return;
    case FieldKind::text:
      *static_cast<std::string*>(field.value) = text_from(field, value, where);
      return;
    case FieldKind::texts:
      assign_each<std::string>(field, value, where, "a list of texts", text_from);
      return;
    case FieldKind::integers:
      assign_each<int64_t>(field, value, where, "a list of whole numbers", integer_from);
      return;
    case FieldKind::section:
      fail_kind(field, value, where, "a section with settings in it");
    case FieldKind::list:
      fail_kind(field, value, where, "a list of tables");
  }
}

void assign_tree(Fields& fields, const SettingNode& table, const std::string& prefix) {
  for (const SettingNode& node : table.children) {
    const std::string name = prefix + node.key;
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
    if (found == fields.end()) fail_unknown_setting(fields, name, node.where);
    if (found->kind == FieldKind::list) {
      assign_list(*found, node);
    } else if (found->kind == FieldKind::section && node.form == SettingNode::Form::table) {
      assign_tree(fields, node, name + ".");
    } else if (node.form == SettingNode::Form::value) {
      assign_value(*found, node.value, node.where);
    } else {
      fail(Code::invalid_argument, "{}: {}: should be a value, not a table ({})", node.where, name, found->help);
    }
  }
}

void settings_from_json(Fields& fields, const Json& json, const std::string& where) {
  if (!json.is_object()) fail(Code::corruption, "{}: should hold a JSON object of settings", where);
  assign_tree(fields, node_from_json(json, where), "");
}

Json value_of(const Field& field) {
  switch (field.kind) {
    case FieldKind::boolean:
      return *static_cast<const bool*>(field.value);
    case FieldKind::integer:
      return *static_cast<const int64_t*>(field.value);
    case FieldKind::number:
      return *static_cast<const double*>(field.value);
    case FieldKind::text:
      return *static_cast<const std::string*>(field.value);
    case FieldKind::texts:
      return *static_cast<const std::vector<std::string>*>(field.value);
    case FieldKind::integers:
      return *static_cast<const std::vector<int64_t>*>(field.value);
    case FieldKind::section:
    case FieldKind::list:
      break;
  }
  CHECK(false, "{} has no value of its own", field.name);
  return {};
}

void check_settings(Fields& fields, const std::string& where) {
  for (Field& field : fields) {
    if (field.kind == FieldKind::section) continue;
    if (field.kind != FieldKind::list) {
      assign_value(field, value_of(field), where);
      continue;
    }
    for (size_t i = 0; i < field.list->size(); ++i) {
      Fields element = field.list->fields(i, fmt::format("{}.{}", field.name, i));
      check_settings(element, where);
    }
  }
}

}  // namespace base
