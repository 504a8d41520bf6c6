// SVG made of one path per colour.
#include "compare/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace compare {
namespace {

constexpr std::array<const char*, kHeatLevels> kColours = {"#eef1f4", "#e3ecd0", "#f7ecb5", "#fadf8a", "#fbc466",
                                                           "#f7a04f", "#ec7440", "#d14434", "#93172a"};
constexpr int kLabelWidth = 92, kMapWidth = 1080, kRowHeight = 16, kAxisHeight = 18;

// Runs of one level in a row, as one SVG path per level.
void add_runs(const HeatRow& row, int y, double cell, std::array<std::string, kHeatLevels>& paths) {
  for (size_t begin = 0; begin < row.values.size();) {
    const int level = heat_level(row.values[begin]);
    size_t end = begin + 1;
    while (end < row.values.size() && heat_level(row.values[end]) == level) ++end;
    const double x = kLabelWidth + cell * static_cast<double>(begin), width = cell * static_cast<double>(end - begin);
    paths[static_cast<size_t>(level)] +=
        fmt::format("M{:.2f} {}h{:.2f}v{}h-{:.2f}z", x, y, width, kRowHeight - 1, width);
    begin = end;
  }
}

}  // namespace

int heat_level(double relative) {
  if (relative == 0) return 0;
  if (!(relative < 0.1)) return kHeatLevels - 1;  // infinities too
  return std::clamp(static_cast<int>(std::floor(std::log10(relative))) + kHeatLevels, 1, kHeatLevels - 2);
}

std::string heat_colour(int level) { return kColours[static_cast<size_t>(level)]; }

std::string heat_label(int level) {
  if (level == 0) return "0";
  return level == 1 ? "below 1e-7" : fmt::format("1e-{}", kHeatLevels - level);
}

std::string heat_map(const std::vector<HeatRow>& rows) {
  size_t widest = 1;
  for (const HeatRow& row : rows) widest = std::max(widest, row.values.size());
  const double cell = std::min(18.0, static_cast<double>(kMapWidth) / static_cast<double>(widest));
  const int height = kAxisHeight + kRowHeight * static_cast<int>(rows.size());
  const double width = kLabelWidth + cell * static_cast<double>(widest);
  std::string svg = fmt::format("<svg viewBox=\"0 0 {:.0f} {}\" width=\"{:.0f}\" height=\"{}\" role=\"img\">\n", width,
                                height, width, height);
  std::array<std::string, kHeatLevels> paths;
  int y = kAxisHeight;
  for (const HeatRow& row : rows) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLabelWidth - 6, y + kRowHeight - 4,
                       row.label);
    add_runs(row, y, cell, paths);
    y += kRowHeight;
  }
  for (size_t level = 0; level < paths.size(); ++level) {
    if (!paths[level].empty()) svg += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", kColours[level], paths[level]);
  }
  const size_t step = widest <= 20 ? 1 : widest <= 100 ? 10 : widest <= 500 ? 50 : 200;
  for (size_t t = 0; t < widest; t += step) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", kLabelWidth + cell * static_cast<double>(t),
                       kAxisHeight - 5, t);
  }
  return svg + "</svg>\n";
}

std::string heat_legend() {
  std::string html = "<p class=\"legend\">relative difference of a token's streams: ";
  for (int level = 0; level < kHeatLevels; ++level) {
    html += fmt::format("<span style=\"background:{};{}\">{}</span>", heat_colour(level), level > 6 ? "color:#fff" : "",
                        heat_label(level));
  }
  return html + "</p>\n";
}

}  // namespace compare
