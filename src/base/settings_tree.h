// What a settings file says, before it is matched with the fields: the common form of TOML and JSON, with the place of
// each value. Only for base/settings*.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/settings.h"

namespace base {

struct SettingNode {
  enum class Form { value, table, tables };
  Form form = Form::value;
  std::string key;                    // in the table that it stands in; empty in a list
  std::string where;                  // "recipe.toml:12"
  Json value;                         // form value: a scalar, or an array of scalars
  std::vector<SettingNode> children;  // form table: its members; form tables: its elements, each of form table
};

// Errors as of read_settings.
void assign_tree(Fields& fields, const SettingNode& table, const std::string& prefix);
// value: JSON of the field's kind. where: for messages.
void assign_value(Field& field, const Json& value, const std::string& where);

Json value_of(const Field& field);  // of a field that is neither section nor list

std::string_view last_part(std::string_view name);    // "a.b.c" -> "c"
std::string_view parent_name(std::string_view name);  // "a.b.c" -> "a.b"
std::string toml_value(const Json& value);            // of a scalar or an array of scalars

[[noreturn]] void fail_unknown_setting(Fields& fields, const std::string& name, const std::string& where);

}  // namespace base
