#include "tulle/linear/model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error_of.hpp"
#include "base/temporary_directory.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

LinearModel three_classes() {
  return {.loss = Loss::logistic,
          .features = 4,
          .classes = {0, 1, 5},
          .weights = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3},
          .intercepts = {0, 0.5f, -1}};
}

RowView view(const std::vector<std::uint32_t>& indices) { return {indices, {}}; }

TEST(Model, PredictsTheClassOfTheLargestMargin) {
  const LinearModel model = three_classes();
  EXPECT_EQ(model.predict(view({0})), 0);
  EXPECT_EQ(model.predict(view({1})), 1);
  EXPECT_EQ(model.predict(view({3})), 5);
}

TEST(Model, IgnoresFeaturesItHasNotSeen) {
  EXPECT_EQ(three_classes().margin(view({1, 4, 99}), 1), three_classes().margin(view({1}), 1));
}

TEST(Model, GivesProbabilitiesThatSumToOne) {
  const std::vector<double> shares = three_classes().probabilities(view({0, 1}));
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_NEAR(shares[0] + shares[1] + shares[2], 1, 1e-12);
  const LinearModel binary{.features = 1, .classes = {-1, 1}, .weights = {2}, .intercepts = {0}};
  EXPECT_NEAR(binary.probabilities(view({0}))[1], 1 / (1 + std::exp(-2.0)), 1e-12);
}

TEST(Model, OfAnotherLossHasNoProbabilities) {
  LinearModel model = three_classes();
  model.loss = Loss::hinge;
  EXPECT_THROW(model.probabilities(view({0})), Error);
}

TEST(Model, IsTheSameAfterSavingAndLoading) {
  const testing::TemporaryDirectory scratch;
  save_model(three_classes(), scratch.path("model"));
  const LinearModel loaded = load_model(*open_file(scratch.path("model")));
  EXPECT_EQ(loaded.weights, three_classes().weights);
  EXPECT_EQ(loaded.intercepts, three_classes().intercepts);
  EXPECT_EQ(loaded.classes, three_classes().classes);
  EXPECT_EQ(loaded.loss, Loss::logistic);
}

TEST(Model, IsRefusedWhereAByteIsWrongOrMissing) {
  const testing::TemporaryDirectory scratch;
  save_model(three_classes(), scratch.path("model"));
  const std::string good = testing::contents_of(scratch.path("model"));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_THROW(load_model(*open_memory("bad", bad)), Error) << "byte " << i;
    EXPECT_THROW(load_model(*open_memory("bad", good.substr(0, i))), Error) << "length " << i;
  }
}

// A file with a right checksum may still be made up.
TEST(Model, IsRefusedWhereItsDescriptionCannotBe) {
  const testing::TemporaryDirectory scratch;
  const auto is_refused = [&](const LinearModel& model) {
    save_model(model, scratch.path("model"));
    try {
      load_model(*open_file(scratch.path("model")));
      FAIL() << "was read";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(scratch.path("model")), 0u) << error.what();
    }
  };
  is_refused({.loss = Loss::logistic, .features = 1, .classes = {}, .weights = {1}, .intercepts = {0}});
  is_refused({.loss = Loss::hinge, .features = 1, .classes = {1}, .weights = {1}, .intercepts = {0}});
  is_refused({.loss = Loss::logistic, .features = kMaxFeatures / 2, .classes = {1, 2, 3}, .intercepts = {0, 0, 0}});
}

TEST(Model, IsRefusedWhereItsFeaturesAreNoCount) {
  const testing::TemporaryDirectory scratch;
  save_model(three_classes(), scratch.path("model"));
  std::ostringstream saved;
  saved << std::ifstream(scratch.path("model")).rdbuf();
  std::string file = saved.str();
  const std::string fields = R"("features":4,"format":1)", endless = R"("features":1e30,"f":111)";
  ASSERT_NE(file.find(fields), std::string::npos);
  file.replace(file.find(fields), fields.size(), endless);  // as long as it was
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(file)).subspan(24));
  std::memcpy(file.data() + 12, &checksum, sizeof checksum);
  std::ofstream(scratch.path("model")) << file;
  EXPECT_NE(testing::error_of([&] { load_model(*open_file(scratch.path("model"))); }).find("features is 1e+30"),
            std::string::npos);
}

}  // namespace
}  // namespace tulle::linear
