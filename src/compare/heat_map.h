// Grids of colours as SVG.
#pragma once
#include <string>
#include <vector>

namespace compare {

// Levels of a relative difference: 0 none at all, then by powers of ten from below 1e-7 to 1e-1 and more.
inline constexpr int kHeatLevels = 9;
int heat_level(double relative);
std::string heat_colour(int level);
std::string heat_label(int level);  // "1e-3"; "0" of level 0

// One row of cells per label; rows may be of any length. Cells of one colour that lie side by side are one shape.
struct HeatRow {
  std::string label;
  std::vector<float> values;
};
std::string heat_map(const std::vector<HeatRow>& rows);
std::string heat_legend();

}  // namespace compare
