// Everything in ASCII, so that it survives any terminal and any mail.
#include "report/text_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace report {
namespace {

// Display width, near enough: characters.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width > width_of(text) ? width - width_of(text) : 0, ' ');
  return left ? text + space : space + text;
}

std::string without_trailing_spaces(std::string line) {
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

// One value per column: the mean of the points that fall on it.
std::vector<double> columns_of(const std::vector<std::pair<int64_t, double>>& points, int width) {
  const size_t count = std::min(points.size(), static_cast<size_t>(width));
  std::vector<double> columns(count, 0.0);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = points.size() * i / count, end = points.size() * (i + 1) / count;
    for (size_t j = begin; j < end; ++j) columns[i] += points[j].second;
    columns[i] /= static_cast<double>(end - begin);
  }
  return columns;
}

}  // namespace

std::string text_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(width_of(cell));
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text;
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      text += "  " + padded(row[i], widths[i], i == 0);
    }
    return without_trailing_spaces(text) + "\n";
  };
  std::string text = line(header);
  for (const auto& row : rows) text += line(row);
  return text;
}

std::string text_chart(const std::vector<std::pair<int64_t, double>>& points, int width, int height) {
  std::vector<std::pair<int64_t, double>> finite;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite),
               [](const auto& p) { return std::isfinite(p.second); });
  if (finite.empty()) return "";
  const std::vector<double> columns = columns_of(finite, width);
  const auto [lowest, highest] = std::minmax_element(columns.begin(), columns.end());
  double low = *lowest, high = *highest;
  if (high - low < 1e-9) {  // a flat line in the middle
    low -= 0.5;
    high += 0.5;
  }
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(columns.size(), ' '));
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto row = static_cast<size_t>(std::llround((high - columns[i]) / (high - low) * (height - 1)));
    rows[row][i] = '*';
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    const double value = high - (high - low) * static_cast<double>(r) / (height - 1);
    text += without_trailing_spaces(fmt::format("  {:>9.3g} |{}", value, rows[r])) + "\n";
  }
  text += fmt::format("  {:>9} +{}\n", "", std::string(columns.size(), '-'));
  const std::string first = std::to_string(finite.front().first), last = std::to_string(finite.back().first);
  const size_t room = std::max(columns.size(), first.size() + last.size() + 1);
  text += fmt::format("  {:>9}  {}{:>{}}\n", "step", first, last, room - first.size());
  return text;
}

std::string one_line(const std::string& text, size_t max_bytes) {
  std::string result;
  bool cut = false;
  for (size_t i = 0; i < text.size() && !cut;) {
    size_t end = i + 1;
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    std::string next = text.substr(i, end - i);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (next == "\n") {
      next = "\\n";
    } else if (next == "\t") {
      next = "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      next = fmt::format("\\x{:02x}", byte);
    }
    cut = result.size() + next.size() > max_bytes;
    if (!cut) result += next;
    i = end;
  }
  return cut ? result + "..." : result;
}

}  // namespace report
