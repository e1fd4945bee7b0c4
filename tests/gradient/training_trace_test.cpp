#include "tulle/gradient/training_trace.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

// A trace of these lines behind a first one that is right.
std::string after_head(const std::string& lines) {
  std::string text = R"({"kind":"trace","model":"m","forward_seconds":0.25})";
  text += '\n';
  text += lines;
  return text;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_training_trace(text, "net.jsonl");
  } catch (const Error& error) {
    return error.what();
  }
  return "was read";
}

TEST(TrainingTrace, what_is_written_is_read_as_it_was) {
  TrainingTrace trace{.model = "two layers",
                      .origin = "by hand",
                      .batch = 32,
                      .forward_seconds = 0.5,
                      .overlap = false,
                      .launch_seconds = 8e-6};
  trace.machine.gamma_select_seconds = 1e-10;
  trace.server.gamma_dense_seconds = 2e-10;
  trace.parameters = {{{"hidden.weight", 12, Role::hidden, 3}, 0.25}, {{"output.bias", 4, Role::bias_or_norm}, 0.125}};
  trace.parameters[0].row_spread = 0.75;
  const TrainingTrace read = parse_training_trace(to_text(trace), "text");
  EXPECT_EQ(to_text(read), to_text(trace));
  EXPECT_EQ(read.machine, trace.machine);
  EXPECT_EQ(read.server, trace.server);
  EXPECT_EQ(read.parameters.at(0).row_spread, 0.75);
  EXPECT_FALSE(read.overlap);
  ASSERT_EQ(read.parameters.size(), 2u);
  EXPECT_EQ(read.parameters[0].parameter.rows, 3u);
  EXPECT_EQ(read.parameters[1].parameter.role, Role::bias_or_norm);
  EXPECT_DOUBLE_EQ(read.compute_seconds(), 0.875);
  EXPECT_EQ(read.values(), 16u);
}

TEST(TrainingTrace, what_is_left_out_has_its_default) {
  const TrainingTrace trace = parse_training_trace(after_head("\n{\"parameter\":\"w\",\"values\":7}\n"), "text");
  EXPECT_TRUE(trace.overlap);
  EXPECT_EQ(trace.machine, Profile());
  EXPECT_EQ(trace.parameters.at(0).parameter.role, Role::hidden);
  EXPECT_EQ(trace.parameters.at(0).backward_seconds, 0);
  EXPECT_EQ(trace.parameters.at(0).row_spread, 0.5);
}

TEST(TrainingTrace, what_is_wrong_is_named_with_file_line_and_field) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "net.jsonl: there are no parameters"},
      {after_head(""), "net.jsonl: there are no parameters"},
      {"words\n", "line 1: is not a JSON object"},
      {"{\"kind\":\"stats\"}\n", "line 1: kind is not 'trace'"},
      {"{\"kind\":\"trace\",\"model\":3}\n", "model is 3, not a text"},
      {"{\"kind\":\"trace\",\"forward_seconds\":-1}\n", "forward_seconds is -1"},
      {"{\"kind\":\"trace\",\"overlap\":1}\n", "overlap is 1, not true or false"},
      {"{\"kind\":\"trace\",\"betas\":1}\n", "line 1: there is no field 'betas'"},
      {after_head("{\"values\":3}"), "line 2: parameter has no name"},
      {after_head("{\"parameter\":\"w\"}"), "values is missing or 0"},
      {after_head("{\"parameter\":\"w\",\"values\":1.5}"), "values is 1.5, not a whole number"},
      {after_head("{\"parameter\":\"w\",\"values\":7,\"rows\":2}"), "2 rows do not divide 7 values"},
      {after_head("{\"parameter\":\"w\",\"values\":7,\"role\":\"main\"}"), "role is 'main'"},
      {after_head("{\"parameter\":\"w\",\"values\":7,\"backward_seconds\":\"soon\"}"), "backward_seconds is \"soon\""},
      {after_head("{\"parameter\":\"w\",\"values\":7}\n\n{\"parameter\":\"w\",\"values\":7}"),
       "line 4: two parameters"},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_NE(refusal_of(text).find(words), std::string::npos) << refusal_of(text) << "\n  wanted: " << words;
  }
}

TEST(TrainingTrace, a_file_that_is_not_there_is_named) {
  try {
    read_training_trace("no/such/trace.jsonl");
    FAIL() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_NE(std::string(error.what()).find("no/such/trace.jsonl"), std::string::npos);
  }
}

}  // namespace
}  // namespace tulle::gradient
