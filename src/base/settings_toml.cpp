// Settings as TOML, in and out. The one file that knows toml++.
#include <toml++/toml.h>

#include "base/error.h"
#include "base/files.h"
#include "base/settings.h"
#include "base/settings_tree.h"

namespace base {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 20;

std::string place(const std::string& where, const toml::source_region& source) {
  return fmt::format("{}:{}", where, source.begin.line);
}

Json scalar_from_toml(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return integer->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  fail(Code::invalid_argument, "{}: should be a number, true or false, or a text in quotes",
       place(where, node.source()));
}

SettingNode node_from_toml(const toml::node& toml, const std::string& where) {
  SettingNode node;
  node.where = place(where, toml.source());
  const toml::array* const array = toml.as_array();
  if (const toml::table* const table = toml.as_table()) {
    node.form = SettingNode::Form::table;
    for (const auto& [key, value] : *table) {
      SettingNode& member = node.children.emplace_back(node_from_toml(value, where));
      member.key = key.str();
      // A key's own line: the value of a [section] begins at the bracket, a multi-line array later than its key.
      member.where = place(where, key.source());
    }
  } else if (array != nullptr && !array->empty() && array->is_homogeneous(toml::node_type::table)) {
    node.form = SettingNode::Form::tables;
    for (const toml::node& element : *array) node.children.push_back(node_from_toml(element, where));
  } else if (array != nullptr) {
    node.value = Json::array();
    for (const toml::node& element : *array) node.value.push_back(scalar_from_toml(element, where));
  } else {
    node.value = scalar_from_toml(toml, where);
  }
  return node;
}

// The fields of a section alone, as lines. An empty list is a value like any other; elements follow as tables.
std::string own_fields(Fields& fields, const std::string& section) {
  std::string text;
  for (Field& field : fields) {
    if (field.kind == FieldKind::section || parent_name(field.name) != section) continue;
    if (field.kind != FieldKind::list) {
      text += fmt::format("{} = {}\n", last_part(field.name), toml_value(value_of(field)));
    } else if (field.list->size() == 0) {
      text += fmt::format("{} = []\n", last_part(field.name));
    }
  }
  return text;
}

// Own fields of a section come before its sub-sections and lists: TOML would otherwise give them to those.
std::string to_toml_below(Fields& fields, const std::string& section) {
  std::string text = own_fields(fields, section);
  for (Field& field : fields) {
    if (field.kind == FieldKind::section) {
      const std::string own = own_fields(fields, field.name);
      if (!own.empty()) text += fmt::format("\n[{}]\n{}", field.name, own);
    } else if (field.kind == FieldKind::list) {
      for (size_t i = 0; i < field.list->size(); ++i) {
        Fields element = field.list->fields(i, field.name);
        text += fmt::format("\n[[{}]]\n{}", field.name, to_toml_below(element, field.name));
      }
    }
  }
  return text;
}

}  // namespace

void parse_settings(Fields& fields, std::string_view toml, const std::string& where) {
  toml::table table;
  try {
    table = toml::parse(toml);
  } catch (const toml::parse_error& error) {
    fail(Code::invalid_argument, "{}:{}:{}: not valid TOML: {}", where, error.source().begin.line,
         error.source().begin.column, error.description());
  }
  assign_tree(fields, node_from_toml(table, where), "");
}

void read_settings(Fields& fields, const std::filesystem::path& path) {
  parse_settings(fields, read_file(path, kMaxFileBytes), path.string());
}

std::string settings_to_toml(Fields& fields) { return to_toml_below(fields, ""); }

}  // namespace base
