// Tables and a line chart as plain text.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace report {

// Columns as wide as their longest cell, two spaces between; the first column to the left, the others to the right.
// Rows may be shorter than the header. Empty without rows.
std::string text_table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

// A chart of (step, value) points, steps ascending, at most `width` columns of points and `height` rows, with labelled
// axes. More points than columns: each column shows the mean of its share. Values that are not finite are left out.
// Empty without points.
std::string text_chart(const std::vector<std::pair<int64_t, double>>& points, int width = 64, int height = 8);

// Text for one line: control characters and line breaks shown as escapes, at most max_bytes (cut between characters,
// "...").
std::string one_line(const std::string& text, size_t max_bytes);

}  // namespace report
