// Reading our own sources as text, for the rules that a compiler does not check. Not a C++ parser: it knows comments,
// literals and braces, which is enough for sources in one format.
#pragma once
#include <cctype>
#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace repo {

namespace fs = std::filesystem;

struct SourceFile {
  std::string path;                // from the root: "src/base/json.cpp"
  std::string text;                // as it stands
  std::string code;                // the same length, with comments, literals and preprocessor lines as blanks
  std::vector<std::string> lines;  // of text
};

struct Function {
  std::string head;  // text before the body, on one line
  size_t first_line = 0, num_lines = 0;
};

inline std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

inline size_t line_of(std::string_view text, size_t at) {
  return 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

namespace detail {

// The end of a literal or comment that begins at `at` (one past its last character); `at` itself if none begins there.
inline size_t end_of_blank(std::string_view text, size_t at) {
  const auto until = [&](std::string_view mark, size_t from) {
    const size_t found = text.find(mark, from);
    return found == std::string_view::npos ? text.size() : found + mark.size();
  };
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) return until("*/", at + 2);
  if (rest.starts_with("R\"")) {
    const size_t open = text.find('(', at);
    return until(")" + std::string(text.substr(at + 2, open - at - 2)) + "\"", open);
  }
  const char quote = text[at];
  const bool digit_separator = quote == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1]));
  if ((quote != '"' && quote != '\'') || digit_separator) return at;
  size_t end = at + 1;
  while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

}  // namespace detail

// Blanks comments, literals and preprocessor lines.
inline std::string blank_text(const std::string& text) {
  std::string code = text;
  bool line_start = true;
  for (size_t at = 0; at < text.size();) {
    size_t end = detail::end_of_blank(text, at);
    if (end == at && text[at] == '#' && line_start) {
      end = text.find('\n', at);
      while (end != std::string::npos && text[end - 1] == '\\') end = text.find('\n', end + 1);
      end = std::min(end, text.size());
    }
    if (end == at) {
      line_start = text[at] == '\n' || (line_start && std::isspace(static_cast<unsigned char>(text[at])));
      ++at;
      continue;
    }
    for (size_t i = at; i < end; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
    at = end;
  }
  return code;
}

inline SourceFile read_source(const fs::path& root, const fs::path& path) {
  SourceFile file;
  file.path = path.lexically_relative(root).generic_string();
  file.text = base::read_file(path);
  file.code = blank_text(file.text);
  file.lines = split_lines(file.text);
  return file;
}

// All .h, .cpp and .cu files below a folder of the root, by path.
inline std::vector<SourceFile> sources_below(const fs::path& root, const std::string& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = entry.path().extension().string();
    if (entry.is_regular_file() && (extension == ".h" || extension == ".cpp" || extension == ".cu"))
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SourceFile> files;
  for (const fs::path& path : paths) files.push_back(read_source(root, path));
  return files;
}

namespace detail {

// Without "template <...>" in front, whose `class` is not a class.
inline std::string without_template(std::string head) {
  for (size_t at = head.find("template"); at != std::string::npos; at = head.find("template")) {
    size_t end = head.find('<', at);
    if (end == std::string::npos) break;
    int depth = 0;
    do {
      depth += head[end] == '<' ? 1 : head[end] == '>' ? -1 : 0;
    } while (++end < head.size() && depth > 0);
    head.erase(at, end - at);
  }
  return head;
}

inline bool opens_scope(const std::string& head) {
  static const std::regex keyword(R"(\b(namespace|class|struct|union|enum|extern)\b)");
  std::smatch found;
  const std::string plain = without_template(head);
  if (!std::regex_search(plain, found, keyword)) return false;
  // `struct stat info(...) {` or a function that returns a struct has a parameter list; `struct X : Base {` has none.
  return plain.find('(', static_cast<size_t>(found.position())) == std::string::npos;
}

inline char next_char(const std::string& code, size_t at) {
  while (at < code.size() && std::isspace(static_cast<unsigned char>(code[at]))) ++at;
  return at < code.size() ? code[at] : '\0';
}

}  // namespace detail

// Functions at namespace and class scope, from the line where they begin to that of the closing brace. What is inside a
// function (lambdas, local classes) belongs to it.
inline std::vector<Function> functions_of(const SourceFile& file) {
  enum class Kind { scope, function, block };
  const std::string& code = file.code;
  std::vector<Kind> open;
  std::vector<Function> functions;
  Function current;
  size_t head_start = 0;
  for (size_t at = 0; at < code.size(); ++at) {
    const char c = code[at];
    const bool in_scope = open.empty() || open.back() == Kind::scope;
    if (c == ';' && in_scope) head_start = at + 1;
    if (c == '{') {
      std::string head = code.substr(head_start, at - head_start);
      head = std::regex_replace(head, std::regex(R"(\s+)"), " ");
      Kind kind = Kind::block;
      if (in_scope)
        kind = detail::opens_scope(head)             ? Kind::scope
               : head.find(')') != std::string::npos ? Kind::function
                                                     : Kind::block;
      if (kind == Kind::function) {
        const size_t first = std::min(code.find_first_not_of(" \n\t", head_start), at);
        current = {head, line_of(code, first), 0};
      }
      if (kind == Kind::scope) head_start = at + 1;
      open.push_back(kind);
    }
    if (c == '}' && !open.empty()) {
      const Kind kind = open.back();
      open.pop_back();
      const bool back_in_scope = open.empty() || open.back() == Kind::scope;
      const char next = detail::next_char(code, at + 1);
      const bool initialiser = back_in_scope && kind != Kind::scope && (next == ',' || next == '{' || next == ')');
      if (initialiser) continue;  // `Foo() : a_{1}, b_{2} {`: the head goes on
      if (kind == Kind::function) {
        current.num_lines = line_of(code, at) - current.first_line + 1;
        functions.push_back(current);
      }
      if (back_in_scope) head_start = at + 1;
    }
  }
  return functions;
}

// "StepMatchesFP8" -> {"Step", "Matches", "FP8"}; "score_math" -> {"score", "math"}.
inline std::vector<std::string> words_of(const std::string& name) {
  static const std::regex word(R"([A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+)");
  return {std::sregex_token_iterator(name.begin(), name.end(), word), std::sregex_token_iterator()};
}

}  // namespace repo
