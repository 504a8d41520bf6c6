// The page: figures, diagnosis, heat maps, tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/heat_map.h"
#include "compare/output.h"

namespace compare {
namespace {

constexpr size_t kShownTokens = 20000;  // with their differences, over all sequences

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>furlong compare</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1220px; padding: 0 1rem; color: #1c2126; background: #fff; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #dde2e7; }
td.l, th.l { text-align: left; } code, .tokens { font-family: ui-monospace, monospace; }
.box { border-left: 4px solid #d14434; padding: .4rem 1rem; background: #fdf3f1; } .good { border-color: #4b8f3a; background: #f2f8ef; }
.scroll { overflow-x: auto; } svg text { font: 11px system-ui, sans-serif; fill: #4a535c; }
.legend span { padding: .1rem .5rem; font-size: .8rem; } .tokens { line-height: 1.9; overflow-wrap: anywhere; }
.tokens span { padding: .1rem .1rem; white-space: pre-wrap; } .sites td { font-size: .8rem; padding: .1rem .35rem; } mark { background: #fadf8a; }
</style></head><body>
)";

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string cell(const std::string& text, bool left = false) {
  return fmt::format("<td{}>{}</td>", left ? " class=\"l\"" : "", escaped(text));
}

std::string figures(const Comparison& comparison) {
  const Differences& d = comparison.differences;
  std::string html = fmt::format(
      "<h1>furlong compare</h1>\n<table><tr>{}{}</tr><tr>{}{}</tr></table>\n<p>{} tokens of {} sequences, temperature "
      "{:g}</p>\n",
      cell("A", true), cell(comparison.names[0], true), cell("B", true), cell(comparison.names[1], true),
      num_tokens(comparison.sequences), comparison.sequences.size(), comparison.temperature);
  if (d.all_equal()) {
    return html + fmt::format("<p class=\"box good\">All {} log-probs are equal to the bit.</p>\n", d.compared);
  }
  html +=
      "<h2>|log-prob of A - log-prob of B|, nats</h2>\n<table><tr><th>tokens</th><th>equal to the "
      "bit</th><th>mean</th><th>p50</th><th>p99</th><th>max</th><th>mean of A - B</th><th>not finite</th></tr><tr>";
  for (const std::string& text : {std::to_string(d.compared), std::to_string(d.equal), number_text(d.absolute.mean),
                                  number_text(d.absolute.p50), number_text(d.absolute.p99), number_text(d.absolute.max),
                                  number_text(d.mean_signed), std::to_string(d.absolute.nonfinite)}) {
    html += cell(text);
  }
  html += "</tr></table>\n";
  for (const std::string& pattern : comparison.patterns)
    html += fmt::format("<p class=\"box\">{}</p>\n", escaped(pattern));
  return html;
}

std::string worst(const Comparison& comparison) {
  if (comparison.differences.worst.empty()) return "";
  std::string html =
      "<h2>Largest differences</h2>\n<div class=\"scroll\"><table><tr><th class=\"l\">sequence</th><th>position</th>"
      "<th>A</th><th>B</th><th>difference</th><th class=\"l\">text</th></tr>\n";
  for (const TokenDifference& token : comparison.differences.worst) {
    const Surroundings around = surroundings(comparison, token.sequence, token.position);
    html += "<tr>" + cell(comparison.sequences[token.sequence].where, true) + cell(std::to_string(token.position)) +
            cell(number_text(token.a)) + cell(number_text(token.b)) + cell(number_text(token.difference)) +
            fmt::format("<td class=\"l\">{}<mark>{}</mark>{}</td></tr>\n", escaped(around.before),
                        escaped(token_text(comparison, token.sequence, token.position)), escaped(around.after));
  }
  return html + "</table></div>\n";
}

std::string diagnosis_html(const Diagnosis& diagnosis) {
  std::string html = fmt::format("<div class=\"box\"><b>{}</b><ul>\n", escaped(diagnosis.line));
  for (const Cause& cause : diagnosis.causes) {
    html += fmt::format("<li><code>{}</code> {}{}<ul>", escaped(cause.id),
                        cause.side < 0    ? ""
                        : cause.side == 0 ? "A "
                                          : "B ",
                        escaped(cause.text));
    for (const std::string& line : cause.evidence) html += "<li>" + escaped(line) + "</li>";
    html += "</ul></li>\n";
  }
  return html + "</ul></div>\n";
}

// Layers down, sites across: the largest relative difference of a row.
std::string site_table(const Walk& walk) {
  std::vector<model::Site> sites;
  std::map<int64_t, std::map<model::Site, const SiteRow*>> rows;
  for (const SiteRow& row : walk.sites) {
    rows[row.layer][row.site] = &row;
    if (std::find(sites.begin(), sites.end(), row.site) == sites.end()) sites.push_back(row.site);
  }
  std::sort(sites.begin(), sites.end());
  std::string html = "<div class=\"scroll\"><table class=\"sites\"><tr><th>layer</th>";
  for (const model::Site site : sites) html += "<th>" + escaped(site_text(site)) + "</th>";
  html += "</tr>\n";
  for (const auto& [layer, values] : rows) {
    html += fmt::format("<tr><td>{}</td>", layer);
    for (const model::Site site : sites) {
      const auto at = values.find(site);
      if (at == values.end()) {
        html += "<td></td>";
        continue;
      }
      const SiteRow& row = *at->second;
      const int level = row.other_shape ? kHeatLevels - 1 : heat_level(row.worst_relative);
      html += fmt::format("<td style=\"background:{};{}\" title=\"{} of {} rows differ\">{}</td>", heat_colour(level),
                          level > 6 ? "color:#fff" : "", row.differing, row.rows,
                          row.other_shape ? "other" : number_text(row.worst_relative));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string walk_html(const Comparison& comparison, const WalkedSequence& walked) {
  const Walk& walk = walked.walk;
  std::string html = fmt::format("<h2>{}, {} tokens, layer by layer</h2>\n",
                                 escaped(comparison.sequences[walked.sequence].where), walk.ids.size());
  if (walked.diagnosis) {
    html += diagnosis_html(*walked.diagnosis);
  } else if (!walk.parting) {
    html += "<p class=\"box good\">Equal to the bit at every site.</p>\n";
  }
  std::vector<HeatRow> rows;
  for (size_t i = 0; i < walk.streams.size(); ++i) {
    rows.push_back({i == 0 ? "embedding" : fmt::format("layer {}", i - 1), walk.streams[i]});
  }
  html += heat_legend() + "<div class=\"scroll\">" + heat_map(rows) + "</div>\n";
  return html + "<h2>Sites: largest relative difference of a row</h2>\n" + site_table(walk);
}

// Each token, coloured by its difference in nats.
std::string tokens_html(const Comparison& comparison) {
  std::string html = "<h2>Tokens</h2>\n<p class=\"legend\">difference of log-probs in nats, colours as above</p>\n";
  size_t shown = 0;
  for (size_t s = 0; s < comparison.sequences.size(); ++s) {
    const size_t count = comparison.sequences[s].ids.size();
    if (shown + count > kShownTokens) {
      html += fmt::format("<p>{} more sequences are not shown.</p>\n", comparison.sequences.size() - s);
      break;
    }
    shown += count;
    html += fmt::format("<p><code>{}</code></p>\n<div class=\"tokens\">", escaped(comparison.sequences[s].where));
    for (size_t t = 0; t < count; ++t) {
      const auto &a = comparison.log_probs[0][s][t], &b = comparison.log_probs[1][s][t];
      const double difference = a && b ? std::abs(double{*a} - double{*b}) : 0;
      const int level = heat_level(difference);
      html += fmt::format(
          "<span style=\"background:{};{}\" title=\"position {}, id {}, A {}, B {}, difference {}\">{}</span>{}",
          heat_colour(level), level > 6 ? "color:#fff" : "", t, comparison.sequences[s].ids[t],
          a ? number_text(*a) : "none", b ? number_text(*b) : "none", number_text(difference),
          escaped(token_text(comparison, s, static_cast<int64_t>(t))), comparison.decode ? "" : " ");
    }
    html += "</div>\n";
  }
  return html;
}

}  // namespace

std::string to_html(const Comparison& comparison) {
  std::string html = kHead + figures(comparison) + worst(comparison);
  if (comparison.no_walk) {
    html += fmt::format("<p>Not compared layer by layer: {}.</p>\n", escaped(*comparison.no_walk));
  }
  for (const WalkedSequence& walked : comparison.walks) html += walk_html(comparison, walked);
  return html + tokens_html(comparison) + "</body></html>\n";
}

}  // namespace compare
