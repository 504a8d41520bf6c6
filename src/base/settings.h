// Settings are plain structs with a visitor. A field's default, range, unit and help text stand once, in the struct,
// and give the command line (--section.key=value), the TOML file, --help, the checks and the settings saved with a run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"

//   struct SchedulerSettings {
//     int64_t max_batch_tokens = 8192;
//     template <class V> void visit(V&& v) {
//       v("max_batch_tokens", max_batch_tokens, "tokens in one forward pass, prefill and decode together",
//         base::Range{1, 1 << 20});
//     }
//   };
//
// Field types: bool, int64_t, double, std::string, std::vector<std::string>, std::vector<int64_t>, structs with visit()
// (a section: its fields are named section.field), and std::vector of such structs (a list: list.0.field, [[list]] in
// TOML). After the help text, in any order: Range (of a number, or of each number of a list), OneOf (for a text, or
// each text of a list), Resume (of a field, or of all fields of a section).

namespace base {

// Closed interval for numbers.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

// Allowed values of a text.
struct OneOf {
  OneOf(std::initializer_list<std::string> list) : values(list) {}
  std::vector<std::string> values;
};

// What a new value means for a run that is resumed: another result than the undisturbed run would have (the default:
// such a change is refused unless told), or only another pace, place or amount of output.
enum class Resume { alters, harmless };

enum class FieldKind { boolean, integer, number, text, texts, integers, section, list };

struct Field;
using Fields = std::vector<Field>;

// A std::vector of settings structs behind one type.
class FieldList {
 public:
  virtual ~FieldList() = default;
  virtual size_t size() const = 0;
  virtual void resize(size_t size) = 0;  // new elements have the default values
  virtual Fields fields(size_t index,
                        const std::string& prefix) = 0;  // of an element, named prefix.field; valid until resize()
  virtual std::unique_ptr<FieldList> one_default()
      const = 0;  // a list of its own with one default element, for help texts
};

// One setting: its name from the root ("rollout.temperature") and where its value lives. Valid as long as the struct it
// came from.
struct Field {
  std::string name, help;
  FieldKind kind = FieldKind::section;
  void* value = nullptr;  // bool*, int64_t*, double*, std::string*, std::vector<...>*; null for sections and lists
  Range range;
  std::vector<std::string> allowed;  // empty: any text
  Resume resume = Resume::alters;
  std::unique_ptr<FieldList> list;  // of kind list
};

// All settings of a struct, depth first, each section before its fields.
template <class S>
Fields fields_of(S& settings, const std::string& prefix = "");

// Assigns from TOML. Errors: invalid_argument naming file and line, the setting, its value, what it should be, and for
// an unknown key the nearest known one; not_found. Fields that the text does not name keep their values; a list that it
// names is replaced whole.
void read_settings(Fields& fields, const std::filesystem::path& path);
void parse_settings(Fields& fields, std::string_view toml, const std::string& where);

// Assigns from what settings_to_json wrote. Errors as above, without lines.
void settings_from_json(Fields& fields, const Json& json, const std::string& where);

// Assigns from one argument: "--section.key=value", or "--section.key" to turn a bool on. Lists of numbers or texts are
// separated by commas or written as a JSON array; --list.0.field= sets a field of an element, the index one past the
// end appends. Errors: invalid_argument.
void override_setting(Fields& fields, std::string_view argument);

// Defaults and values set by code, against their ranges. (Assignments above check as they go.) Errors:
// invalid_argument.
void check_settings(Fields& fields, const std::string& where);

Json settings_to_json(Fields& fields);                   // nested by section, every field
std::string settings_to_toml(Fields& fields);            // a file that read_settings takes back to the same values
std::string settings_help(Fields& fields);               // text for --help; shows the current values as defaults
std::vector<std::string> setting_names(Fields& fields);  // every field, "list.N.field" for lists

// A setting whose value now is not the one saved. before or after is null where the setting does not exist on that
// side.
struct SettingChange {
  std::string name;
  Json before, after;
  Resume resume = Resume::alters;
};
std::vector<SettingChange> setting_changes(Fields& now, const Json& saved);

// ---- The visitor that makes Fields. Everything after it is in settings*.cpp.

class Collector {
 public:
  explicit Collector(std::string prefix) : prefix_(std::move(prefix)) {}

  template <class T, class... Marks>
  void operator()(const char* name, T& value, const char* help, const Marks&... marks);

  Fields take() { return std::move(fields_); }  // a CHECK fails when two settings have one name

 private:
  Field start(const char* name, const char* help) const;
  void add(Field field, FieldKind kind, void* value);
  void add_section(Field section, Fields inner);
  static void mark(Field& field, const Range& range) { field.range = range; }
  static void mark(Field& field, const OneOf& one_of) { field.allowed = one_of.values; }
  static void mark(Field& field, Resume resume) { field.resume = resume; }

  std::string prefix_;
  Fields fields_;
};

template <class T>
concept Visitable = std::is_class_v<T> && requires(T& settings, Collector& visitor) {
  settings.visit(visitor);
};

template <class S>
class FieldListOf : public FieldList {
 public:
  explicit FieldListOf(std::vector<S>* elements) : elements_(elements) {}
  explicit FieldListOf(size_t size) : own_(size), elements_(&own_) {}
  FieldListOf(const FieldListOf&) = delete;
  FieldListOf& operator=(const FieldListOf&) = delete;
  size_t size() const override { return elements_->size(); }
  void resize(size_t size) override { elements_->resize(size); }
  Fields fields(size_t index, const std::string& prefix) override { return fields_of(elements_->at(index), prefix); }
  std::unique_ptr<FieldList> one_default() const override { return std::make_unique<FieldListOf>(size_t{1}); }

 private:
  std::vector<S> own_;
  std::vector<S>* elements_;
};

template <class S>
Fields fields_of(S& settings, const std::string& prefix) {
  Collector collector(prefix);
  settings.visit(collector);
  return collector.take();
}

template <class T>
struct ElementOf {
  using Type = void;
};
template <class T>
struct ElementOf<std::vector<T>> {
  using Type = T;
};

template <class T, class... Marks>
void Collector::operator()(const char* name, T& value, const char* help, const Marks&... marks) {
  using Element = typename ElementOf<T>::Type;
  Field field = start(name, help);
  (mark(field, marks), ...);
  if constexpr (std::is_same_v<T, bool>) {
    add(std::move(field), FieldKind::boolean, &value);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    add(std::move(field), FieldKind::integer, &value);
  } else if constexpr (std::is_same_v<T, double>) {
    add(std::move(field), FieldKind::number, &value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    add(std::move(field), FieldKind::text, &value);
  } else if constexpr (std::is_same_v<Element, std::string>) {
    add(std::move(field), FieldKind::texts, &value);
  } else if constexpr (std::is_same_v<Element, int64_t>) {
    add(std::move(field), FieldKind::integers, &value);
  } else if constexpr (Visitable<Element>) {
    field.list = std::make_unique<FieldListOf<Element>>(&value);
    add(std::move(field), FieldKind::list, nullptr);
  } else {
    static_assert(Visitable<T>,
                  "a settings field is bool, int64_t, double, std::string, a vector of them, or a struct with visit()");
    Fields inner = fields_of(value, field.name);
    add_section(std::move(field), std::move(inner));
  }
}

}  // namespace base
