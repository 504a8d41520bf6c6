// Normal forms of written mathematics: text in, text out, no algebra. Two answers whose normal forms are equal count as
// equal.
#pragma once
#include <string>
#include <string_view>

namespace rewards {

// The form that DAPO compares: what follows the last "=", without units, articles, spaces, dollars and \text{}, with
// \frac12 and \sqrt3 in braces and 1,000 without commas. Source: Lewkowycz et al., "Solving quantitative reasoning
// problems with language models", 2022, appendix D.1 (the lists).
std::string normalize_final_answer(std::string_view answer);

// The form of the MATH data set's grader: \tfrac and \dfrac as \frac, degrees, dollars, percent, \left and \right and a
// unit in \text{ } dropped, a short "k =" dropped, 0.5 and 3/4 as \frac. Source: Hendrycks et al., "Measuring
// mathematical problem solving with the MATH dataset", 2021 (is_equiv).
std::string strip_string(std::string_view answer);

// The looser form that DeepScaleR tries next: also lower case, unwrapped \text{}, \mathrm{} and \mbox{}, without unit
// words, spaces and grouping commas, and a/b as \frac{a}{b} where a and b are single terms.
std::string normalize_expression(std::string_view answer);

// The answer without what may stand around a number: dollars, percent, degrees, \left, \right, \!, a unit at the end
// (in \text{}, \mathrm{} or as a word, perhaps squared), a full stop. Spaces inside stay.
std::string bare_number_text(std::string_view answer);

}  // namespace rewards
