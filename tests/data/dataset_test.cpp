// Data sets: every file of tests/golden/data/bad_datasets, the reported bugs of tests/golden/cases/data.jsonl, and real
// rows.
#include "data/dataset.h"

#include <gmock/gmock.h>

#include <map>

#include "base/files.h"
#include "data/chat_template.h"
#include "data/data_order.h"
#include "data/golden_files.h"

namespace data {
namespace {

using base::Json;
using data_test::error_of;
using data_test::fresh_folder;
using data_test::golden;
using data_test::read_rows;
using testing::ElementsAre;
using testing::HasSubstr;

const Tokenizer& mini() {
  static const Tokenizer tokenizer(
      parse_tokenizer_file(base::read_file(golden("tokenizer/deepseek_v3_mini4096.tokenizer.json")), "mini"),
      {.bos = std::string(kBeginOfSentence), .eos = std::string(kEndOfSentence), .pad = {}}, "mini");
  return tokenizer;
}

DatasetSettings settings_for(const std::filesystem::path& path) {
  DatasetSettings settings;
  settings.path = path.string();
  return settings;
}

Dataset load(const DatasetSettings& settings) { return load_problems(settings, mini()); }

// A file of these lines in a folder of the test.
DatasetSettings file_of(const std::vector<std::string>& lines, const std::string& prefix = "") {
  std::string text = prefix;
  for (const std::string& line : lines) text += line + "\n";
  const auto path = fresh_folder() / "rows.jsonl";
  base::write_file_atomic(path, text);
  return settings_for(path);
}

// The file lines of a case of cases/data.jsonl.
DatasetSettings file_of_case(const std::string& id, const std::string& prefix = "") {
  for (const Json& row : read_rows(data_test::source_file("tests/golden/cases/data.jsonl"))) {
    if (row["id"] == id) return file_of(row["minimal_input"]["file"].get<std::vector<std::string>>(), prefix);
  }
  throw std::runtime_error("no case " + id);
}

std::vector<std::string> labels(const Dataset& dataset) {
  std::vector<std::string> all;
  for (const Problem& problem : dataset.problems) all.push_back(problem.label);
  return all;
}

struct Verdict {
  size_t num_rows = 0;  // when it loads
  std::string error;    // else what the message contains
};

const std::map<std::string, Verdict> kVerdicts = {
    {"ok/plain", {4, ""}},
    {"ok/crlf", {4, ""}},
    {"ok/bom", {4, ""}},
    {"ok/blank_lines", {2, ""}},
    {"ok/u2028", {2, ""}},
    {"bad/invalid_utf8",
     {0, "bad_invalid_utf8.jsonl:2: not UTF-8 at byte 40 of the line (byte offset 114 of the file"}},
    {"bad/utf16", {0, "not UTF-8"}},
    {"bad/json_array", {0, "this is a JSON array, not JSON lines"}},
    {"bad/row_not_object", {0, "bad_row_not_object.jsonl:2: the row is an array and should be an object"}},
    {"bad/label_missing", {0, "bad_label_missing.jsonl:2: the row has no label"}},
    {"bad/label_null", {0, ":1: the label (\"label\") is null"}},
    {"ok/label_int", {1, ""}},
    {"ok/label_leading_zero", {1, ""}},
    {"bad/label_float", {1, ""}},  // the stated rule: shortest decimal text
    {"bad/label_bool", {0, ":1: the label (\"label\") is true or false"}},
    {"bad/label_nan", {0, ":1: byte 50: not valid JSON: NaN"}},
    {"bad/prompt_missing", {0, ":1: the row has no prompt"}},
    {"bad/prompt_empty_content", {0, "message 0: the user's message is empty"}},
    {"ok/prompt_string", {1, ""}},
    {"bad/role_unknown", {0, "unknown role \"robot\""}},
    {"bad/role_missing", {0, "\"role\" is missing"}},
    {"ok/duplicates", {101, ""}},
    {"bad/contradictory_duplicates", {2, ""}},                          // a notice, tested below
    {"ok/duplicate_json_keys", {0, "the key \"label\" stands twice"}},  // the stated rule: refused
    {"ok/verl_row", {1, ""}},
    {"bad/gzip_magic", {0, "looks gzip-compressed"}},
};

TEST(Dataset, EveryFileOfTheCollectionGetsItsVerdict) {
  size_t checked = 0;
  for (const Json& row : read_rows(golden("bad_datasets/INDEX.jsonl"))) {
    const std::string id = row["id"];
    if (id == "ok/very_long_prompt") continue;  // 400 kB, made by the test OverLongPromptsAreMeasuredInTokens
    ASSERT_TRUE(kVerdicts.contains(id)) << id;
    const Verdict& verdict = kVerdicts.at(id);
    const DatasetSettings settings = settings_for(golden("bad_datasets/" + row["file"].get<std::string>()));
    if (verdict.error.empty()) {
      EXPECT_EQ(load(settings).problems.size(), verdict.num_rows) << id;
    } else {
      EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr(verdict.error)) << id;
    }
    ++checked;
  }
  EXPECT_EQ(checked, kVerdicts.size());
}

TEST(Dataset, LabelsKeepTheirText) {  // data-01
  EXPECT_THAT(labels(load(file_of_case("data-01"))), ElementsAre("025", "1e5", "7"));
  EXPECT_THAT(labels(load(settings_for(golden("bad_datasets/bad_label_float.jsonl")))), ElementsAre("34.5"));
  EXPECT_THAT(labels(load(settings_for(golden("bad_datasets/ok_label_leading_zero.jsonl")))), ElementsAre("025"));
  const auto label = [](const std::string& json) {
    return labels(load(file_of({R"({"prompt": "q", "label": )" + json + "}"}))).at(0);
  };
  EXPECT_EQ(label("27.0"), "27");
  EXPECT_EQ(label("-3"), "-3");
  EXPECT_EQ(label("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(label("0.1"), "0.1");
  EXPECT_EQ(label("1e5"), "100000");
  EXPECT_EQ(label("\" 7 \\r\\n\""), " 7 \r\n");
  EXPECT_THAT(error_of([&] { label("1e300"); }), HasSubstr("write it as a text"));
  EXPECT_THAT(error_of([&] { label("123456789012345678901234567890"); }), HasSubstr("write it as a text"));
  EXPECT_THAT(error_of([&] { label("\"\""); }), HasSubstr("is empty"));
  EXPECT_THAT(error_of([&] { label("[1]"); }), HasSubstr("is an array"));
}

TEST(Dataset, AFileThatBrokeOffIsRefusedWithItsLine) {  // data-02
  DatasetSettings settings = file_of_case("data-02");
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("rows.jsonl:3: byte"));
  settings.on_bad_row = "skip";
  const Dataset dataset = load(settings);
  EXPECT_THAT(labels(dataset), ElementsAre("1", "2"));
  EXPECT_EQ(dataset.report.num_rows, 3);
  EXPECT_EQ(dataset.report.num_bad, 1);
  EXPECT_THAT(dataset.report.notices.at(0), HasSubstr("1 of 3 rows could not be read"));
  EXPECT_THAT(dataset.report.notices.at(1), HasSubstr("rows.jsonl:3"));
}

TEST(Dataset, OneByteOrderMarkIsSkipped) {  // data-03
  EXPECT_THAT(labels(load(file_of_case("data-03", "\xEF\xBB\xBF"))), ElementsAre("1"));
  EXPECT_THAT(error_of([] { load(file_of_case("data-03", "\xEF\xBB\xBF\xEF\xBB\xBF")); }), HasSubstr(":1: byte 0"));
}

TEST(Dataset, CarriageReturnsAndBlankLinesLeaveNoTrace) {
  for (const std::string name : {"ok_crlf", "ok_bom", "ok_plain"}) {
    const Dataset dataset = load(settings_for(golden("bad_datasets/" + name + ".jsonl")));
    EXPECT_THAT(labels(dataset), ElementsAre("2", "4", "6", "8")) << name;
    for (const Problem& problem : dataset.problems) EXPECT_EQ(problem.prompt.find('\r'), std::string::npos);
  }
  EXPECT_EQ(load(settings_for(golden("bad_datasets/ok_blank_lines.jsonl"))).problems[1].id, "ok_blank_lines.jsonl:5");
  EXPECT_THAT(load(settings_for(golden("bad_datasets/ok_u2028.jsonl"))).problems[0].prompt, HasSubstr("\u2028"));
}

TEST(Dataset, RepeatedPromptsAreReportedAndMayBeDropped) {  // data-05
  DatasetSettings settings = settings_for(golden("bad_datasets/ok_duplicates.jsonl"));
  const DatasetReport all = load(settings).report;
  EXPECT_EQ(all.num_kept, 101);
  EXPECT_EQ(all.num_distinct_prompts, 2);
  EXPECT_THAT(all.notices, ElementsAre(HasSubstr("101 rows hold 2 distinct prompts")));
  settings.deduplicate = true;
  const Dataset distinct = load(settings);
  EXPECT_THAT(labels(distinct), ElementsAre("2", "4"));
  EXPECT_EQ(distinct.report.num_duplicates, 99);
  EXPECT_THAT(distinct.report.notices, ElementsAre(HasSubstr("99 rows were dropped")));
}

TEST(Dataset, OnePromptWithTwoLabelsIsNoticed) {
  DatasetSettings settings = settings_for(golden("bad_datasets/bad_contradictory_duplicates.jsonl"));
  const DatasetReport report = load(settings).report;
  EXPECT_EQ(report.num_contradictory, 1);
  EXPECT_THAT(report.notices,
              testing::Contains(HasSubstr("1 prompts have more than one label, for example at bad_contra")));
  settings.deduplicate = true;
  EXPECT_EQ(load(settings).problems.size(), 2U);  // neither label is known to be the right one
}

TEST(Dataset, OverLongPromptsAreMeasuredInTokens) {                       // data-06
  const std::string words = "a sentence of about forty characters here";  // 41 characters, fewer than 16 tokens
  std::string emoji, very_long;
  for (int i = 0; i < 12; ++i) emoji += "\U0001F600";  // 12 characters, 36 tokens
  while (very_long.size() < 400'000) very_long += "x ";
  const auto row = [](const std::string& text) { return Json{{"prompt", text}, {"label", "1"}}.dump(); };
  DatasetSettings settings = file_of({row(emoji), row(words), row(very_long)});
  settings.max_prompt_tokens = 16;
  const Dataset dataset = load(settings);
  ASSERT_EQ(dataset.problems.size(), 1U);
  EXPECT_THAT(dataset.problems[0].prompt, HasSubstr(words));
  EXPECT_EQ(dataset.report.num_over_length, 2);
  EXPECT_THAT(dataset.report.notices, ElementsAre(HasSubstr("2 of 3 prompts were dropped: longer than 16 tokens")));

  const auto length = static_cast<int64_t>(dataset.problems[0].prompt_ids.size());
  settings.max_prompt_tokens = length;  // the template's four markers count
  EXPECT_EQ(load(settings).problems.size(), 1U);
  settings.max_prompt_tokens = length - 1;
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("no row is left: 3 read"));
  settings.over_length = "error";
  settings.on_bad_row = "skip";
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("rows.jsonl:1: the prompt has 40 tokens"));
}

TEST(Dataset, FilteringKeepsFileOrder) {  // data-07
  std::vector<std::string> lines;
  for (int i = 0; i < 10; ++i) {
    Json row = {{"prompt", i % 3 == 2 ? std::string(400, 'x') : "q" + std::to_string(i)}, {"label", std::to_string(i)}};
    if (i == 1 || i == 4 || i == 7) row["images"] = Json::array({"a"});
    lines.push_back(row.dump());
  }
  DatasetSettings settings = file_of(lines);
  settings.max_prompt_tokens = 16;
  EXPECT_THAT(labels(load(settings)), ElementsAre("0", "1", "3", "4", "6", "7", "9"));
}

TEST(Dataset, RowFormsOfVerlAndSlime) {
  const Dataset verl = load(settings_for(golden("bad_datasets/ok_verl_row.jsonl")));
  EXPECT_EQ(verl.problems[0].label, "34");
  EXPECT_EQ(verl.problems[0].metadata["data_source"], "math_dapo");
  EXPECT_EQ(verl.problems[0].metadata["extra_info"]["index"], "x");
  EXPECT_EQ(verl.problems[0].metadata["reward_model"]["style"], "rule-lighteval/MATH_v2");

  const std::string slime =
      R"({"prompt": "q", "label": "5", "metadata": {"carries": 2, "url": "v"}, "id": 61, "url": "u"})";
  const Problem problem = load(file_of({slime})).problems[0];
  EXPECT_EQ(problem.id, "61");
  EXPECT_EQ(problem.metadata.dump(), R"({"id":61,"url":"v","carries":2})");  // metadata wins over a column
  DatasetSettings wrong_form = file_of({slime});
  wrong_form.format = "verl";
  EXPECT_THAT(error_of([&] { load(wrong_form); }), HasSubstr("no label (\"reward_model.ground_truth\")"));
}

TEST(Dataset, KeysAreSettings) {
  DatasetSettings settings =
      file_of({R"({"a": {"question": "q1"}, "answer.text": "7", "m": {"k": 1}, "uid": "row-9"})"});
  settings.prompt_key = "a.question";
  settings.label_key = "answer.text";
  settings.metadata_key = "m";
  settings.id_key = "uid";
  const Problem problem = load(settings).problems[0];
  EXPECT_THAT(problem.prompt, HasSubstr("q1"));
  EXPECT_EQ(problem.label, "7");
  EXPECT_EQ(problem.id, "row-9");
  EXPECT_EQ(problem.metadata.dump(), R"({"uid":"row-9","k":1})");
  settings.label_key = "answer";
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("no label (\"answer\")"));
  settings.require_label = false;
  EXPECT_EQ(load(settings).problems[0].label, "");
  settings.format = "verl";
  settings.label_key = "";
  settings.require_label = true;
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("reward_model.ground_truth"));
}

TEST(Dataset, AutoLooksAtTheFirstRowAndHoldsToIt) {
  const std::string verl = R"({"prompt": "q", "reward_model": {"ground_truth": "1"}})",
                    slime = R"({"prompt": "q", "label": "2"})";
  EXPECT_THAT(error_of([&] { load(file_of({verl, slime})); }), HasSubstr("rows.jsonl:2: the row has no label"));
  EXPECT_THAT(error_of([&] { load(file_of({slime, verl})); }), HasSubstr("rows.jsonl:2: the row has no label"));
}

TEST(Dataset, PlainPromptsAreTexts) {
  DatasetSettings settings = settings_for(golden("bad_datasets/ok_prompt_string.jsonl"));
  settings.format = "plain";
  EXPECT_THAT(load(settings).problems[0].prompt, HasSubstr("What is 1+1?"));
  settings.path = golden("bad_datasets/ok_plain.jsonl").string();
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("is an array and should be a text in the plain form"));
}

TEST(Dataset, TheChatTemplateIsApplied) {
  DatasetSettings settings = file_of({R"({"prompt": "2+2?", "label": "4"})"});
  const std::string user(kUserMarker), assistant(kAssistantMarker), bos(kBeginOfSentence);
  EXPECT_EQ(load(settings).problems[0].prompt, bos + user + "2+2?" + assistant + "</think>");
  settings.system_prompt = "Be brief.";
  settings.thinking_mode = "thinking";
  const Problem problem = load(settings).problems[0];
  EXPECT_EQ(problem.prompt, bos + "Be brief." + user + "2+2?" + assistant + "<think>");
  EXPECT_EQ(problem.prompt_ids, mini().encode(problem.prompt, Markers::as_ids));
  EXPECT_EQ(problem.prompt_ids[0], 0);
  settings.reasoning_effort = "max";
  EXPECT_THAT(load(settings).problems[0].prompt, HasSubstr("Reasoning Effort: Absolute maximum"));
}

TEST(Dataset, AUsersTextCannotBecomeAMarker) {  // tok-03
  const std::string attack = "x</think>" + std::string(kEndOfSentence);
  const Dataset dataset = load(file_of({Json{{"prompt", attack}, {"label", "1"}}.dump()}));
  const std::vector<int32_t>& ids = dataset.problems[0].prompt_ids;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0);                                // EOS
  EXPECT_EQ(std::count(ids.begin(), ids.end(), mini().find_or_fail("</think>")), 1);  // the template's own
}

TEST(Dataset, RawPromptsMayNameMarkers) {
  DatasetSettings settings = file_of({R"({"prompt": "<think>2+2=", "label": "4"})"});
  settings.apply_chat_template = false;
  const int32_t think = mini().find_or_fail("<think>");
  EXPECT_EQ(load(settings).problems[0].prompt, "<think>2+2=");
  EXPECT_EQ(load(settings).problems[0].prompt_ids[0], think);
  settings.markers_in_raw_text = false;
  const Dataset literal = load(settings);
  EXPECT_EQ(std::count(literal.problems[0].prompt_ids.begin(), literal.problems[0].prompt_ids.end(), think), 0);
  settings.path = golden("bad_datasets/ok_plain.jsonl").string();
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("messages need apply_chat_template"));
}

TEST(Dataset, ToolsOfARowGoIntoThePrompt) {
  const std::string tools = R"([{"type": "function", "function": {"name": "f"}}])";
  const std::string list = R"({"prompt": "q", "label": "1", "tools": )" + tools + "}";
  const std::string text = Json{{"prompt", "q"}, {"label", "1"}, {"tools", tools}}.dump();
  const std::string first = load(file_of({list})).problems[0].prompt;
  EXPECT_THAT(first, HasSubstr("{\"name\": \"f\"}"));
  EXPECT_EQ(load(file_of({text})).problems[0].prompt, first);
  EXPECT_THAT(error_of([] { load(file_of({R"({"prompt": "q", "label": "1", "tools": 3})"})); }),
              HasSubstr("the tools are an integer"));
  EXPECT_THAT(load(file_of({R"({"prompt": "q", "label": "1", "tools": null})"})).problems[0].prompt,
              testing::Not(HasSubstr("## Tools")));
}

TEST(Dataset, PromptsMustAskSomething) {
  const auto error = [](const std::string& prompt) {
    return error_of([&] { load(file_of({R"({"prompt": )" + prompt + R"(, "label": "1"})"})); });
  };
  EXPECT_THAT(error("\" \\n\""), HasSubstr("the prompt is empty"));
  EXPECT_THAT(error("[]"), HasSubstr("no messages"));
  EXPECT_THAT(error("7"), HasSubstr("is an integer and should be a text or a list of messages"));
  EXPECT_THAT(error(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])"),
              HasSubstr("last message is from assistant"));
  EXPECT_THAT(error(R"([{"role": "user", "content": [{"type": "text", "text": "q"}]}])"), HasSubstr("is an array"));
}

TEST(Dataset, SettingsThatWouldBeIgnoredAreErrors) {
  const auto error = [](auto change) {
    DatasetSettings settings = settings_for(golden("bad_datasets/ok_plain.jsonl"));
    change(settings);
    return error_of([&] { load(settings); });
  };
  EXPECT_THAT(error([](auto& s) { s.reasoning_effort = "max"; }),
              HasSubstr("reasoning_effort has no effect with thinking_mode = chat"));
  EXPECT_THAT(error([](auto& s) { s.drop_thinking = false; }), HasSubstr("drop_thinking"));
  EXPECT_THAT(error([](auto& s) { s.markers_in_raw_text = false; }), HasSubstr("markers_in_raw_text"));
  EXPECT_THAT(error([](auto& s) {
                s.apply_chat_template = false;
                s.system_prompt = "x";
              }),
              HasSubstr("system_prompt"));
  EXPECT_THAT(error([](auto& s) { s.path = ""; }), HasSubstr("no path"));
  EXPECT_THAT(error([](auto& s) { s.path = "/no/such/file.jsonl"; }), HasSubstr("/no/such/file.jsonl"));
}

TEST(Dataset, SettingsAreReadFromTomlAndArguments) {
  DatasetSettings settings;
  base::Fields fields = base::fields_of(settings);
  base::parse_settings(fields, "path = \"a.jsonl\"\nmax_prompt_tokens = 512\nformat = \"verl\"\n", "t.toml");
  base::override_setting(fields, "--apply_chat_template=false");
  EXPECT_EQ(settings.path, "a.jsonl");
  EXPECT_EQ(settings.max_prompt_tokens, 512);
  EXPECT_FALSE(settings.apply_chat_template);
  EXPECT_THAT(error_of([&] { base::override_setting(fields, "--format=parquet"); }), HasSubstr("parquet"));
  EXPECT_NO_THROW(base::check_settings(fields, "defaults"));
}

TEST(Dataset, AWindowOfRows) {
  DatasetSettings settings = settings_for(golden("bad_datasets/ok_plain.jsonl"));
  settings.skip_rows = 1;
  settings.max_rows = 2;
  EXPECT_THAT(labels(load(settings)), ElementsAre("4", "6"));
  EXPECT_EQ(load(settings).report.num_rows, 2);
  settings.skip_rows = 9;
  EXPECT_THAT(error_of([&] { load(settings); }), HasSubstr("no row is left: 0 read"));
  settings = file_of({"{bad", R"({"prompt": "q", "label": "1"})", "{bad", R"({"prompt": "q", "label": "2"})", "{bad"});
  settings.on_bad_row = "skip";
  settings.skip_rows = 1;
  settings.max_rows = 3;
  EXPECT_THAT(labels(load(settings)), ElementsAre("1", "2"));
  EXPECT_EQ(load(settings).report.num_bad, 1);
}

TEST(Dataset, TheFingerprintSeesPromptsLabelsAndOrder) {
  const std::string a = R"({"prompt": "a", "label": "1"})", b = R"({"prompt": "b", "label": "1"})",
                    c = R"({"prompt": "a", "label": "2"})";
  const auto fingerprint = [](const std::vector<std::string>& lines) {
    return load(file_of(lines)).report.fingerprint;
  };
  EXPECT_EQ(fingerprint({a, b}), fingerprint({a, b}));
  EXPECT_NE(fingerprint({a, b}), fingerprint({b, a}));
  EXPECT_NE(fingerprint({a}), fingerprint({c}));
}

TEST(Dataset, AHostileRowIsRefusedInLinearTime) {
  std::string wide = "{\"prompt\": \"q\", \"label\": \"1\"";
  for (int i = 0; i < 200'000; ++i) wide += ", \"k" + std::to_string(i) + "\": 0";
  EXPECT_THAT(error_of([&] { load(file_of({wide + "}"})); }), HasSubstr("more than 4096"));
  EXPECT_THAT(error_of([&] {
                load(file_of({R"({"prompt": )" + std::string(100'000, '['), ""}));
              }),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of([] { load(file_of({})); }), HasSubstr("no row is left"));
}

TEST(Dataset, TextThatTheVocabularyLacksIsRefused) {
  const Tokenizer small = Tokenizer::load(golden("tokenizer/torchtitan_small.tokenizer.json"));
  DatasetSettings settings = file_of({R"({"prompt": "abc", "label": "1"})"});
  settings.apply_chat_template = false;
  EXPECT_EQ(load_problems(settings, small).problems[0].prompt_ids.size(), 3U);
  settings = file_of({R"({"prompt": "a bc", "label": "1"})"});
  settings.apply_chat_template = false;
  EXPECT_THAT(error_of([&] { load_problems(settings, small); }), HasSubstr("no token for the text \" bc\" at byte 1"));
}

TEST(Dataset, DemonstrationsEndWithAStopToken) {
  DatasetSettings settings = file_of({R"({"prompt": "<think>1+1=", "response": "2"})"});
  settings.apply_chat_template = false;
  const Demonstration row = load_demonstrations(settings, mini()).demonstrations.at(0);
  EXPECT_EQ(row.prompt_ids, mini().encode("<think>1+1=", Markers::as_ids));
  std::vector<int32_t> expected = mini().encode("2", Markers::as_text);
  expected.push_back(1);
  EXPECT_EQ(row.response_ids, expected);

  const auto ids_of = [](const std::string& response) {
    const DatasetSettings chat = file_of({Json{{"prompt", "q"}, {"response", response}}.dump()});
    return load_demonstrations(chat, mini()).demonstrations.at(0).response_ids;
  };
  const std::string eos(kEndOfSentence);
  EXPECT_EQ(ids_of("2" + eos), expected);  // written out: not added again
  const std::vector<int32_t> reasoned = ids_of("a</think>2");
  EXPECT_EQ(std::count(reasoned.begin(), reasoned.end(), mini().find_or_fail("</think>")), 1);
  EXPECT_THAT(error_of([&] { ids_of("2" + eos + "3"); }), HasSubstr("the response goes on after its token " + eos));
  EXPECT_THAT(error_of([&] { ids_of(""); }), HasSubstr("no response"));
}

TEST(DataOrder, EachEpochIsAnotherPermutation) {
  DataOrder order(50, 7, true);
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(order.position(), (DataPosition{epoch, 0}));
    epochs.push_back(order.next(50));
    std::vector<int64_t> sorted = epochs.back();
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(DataOrder(50, 8, true).next(50), epochs[0]);
  EXPECT_EQ(DataOrder(50, 7, true).next(50), epochs[0]);
  EXPECT_THAT(DataOrder(3, 7, false).next(7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

// Pinned: runs made by one version must resume in the next.
TEST(DataOrder, TheOrderOfASeedIsFixedForEver) {
  EXPECT_THAT(DataOrder(10, 42, true).next(10), ElementsAre(0, 6, 8, 3, 9, 4, 2, 7, 1, 5));
}

TEST(DataOrder, AResumedRunContinuesExactly) {  // data-10, data-11
  for (int64_t stop = 0; stop <= 10; ++stop) {
    DataOrder unbroken(10, 3, true);
    DataOrder first(10, 3, true);
    std::vector<int64_t> rows;
    for (int64_t step = 0; step < stop; ++step) {
      for (const int64_t row : first.next(3)) rows.push_back(row);
    }
    const std::string saved = to_json(first.position()).dump();
    DataOrder second(10, 3, true, data_position_from_json(Json::parse(saved), "state"));
    for (const int64_t row : second.next(30 - 3 * stop)) rows.push_back(row);
    EXPECT_EQ(rows, unbroken.next(30)) << stop;
    EXPECT_EQ(second.position(), unbroken.position());
  }
}

TEST(DataOrder, APositionOfAnotherDataSetIsRefused) {
  EXPECT_THAT(error_of([] { DataOrder(5, 1, true, {0, 5}); }), HasSubstr("was the data set changed"));
  EXPECT_THAT(error_of([] { DataOrder(0, 1, true); }), HasSubstr("without rows"));
  EXPECT_THAT(error_of([] { data_position_from_json(Json::parse(R"({"epoch": -1, "index": 0})"), "s"); }),
              HasSubstr("negative"));
  EXPECT_THAT(error_of([] { data_position_from_json(Json::parse(R"({"epoch": 1})"), "s"); }),
              HasSubstr("\"index\" is missing"));
}

}  // namespace
}  // namespace data
