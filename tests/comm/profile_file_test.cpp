// Profiles on disk: what is written is read back, and what is wrong is named.
#include "tulle/comm/profile_file.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <mutex>

#include "base/temporary_directory.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle {
namespace {

// Every constant is another number, with quartiles around it.
MeasuredProfile sample() {
  MeasuredProfile measured{.machine = "a \"host\", 2 cores", .date = "2024-05-31T12:00:00Z", .transport = "mpi"};
  measured.ranks = 4;
  measured.nodes = 2;
  double value = 1.0 / 3e6;
  for (const ProfileConstant& constant : profile_constants()) {
    measured.profile.*constant.field = value;
    measured.first_quartile.*constant.field = 0.9 * value;
    measured.third_quartile.*constant.field = 1.1 * value;
    value /= 3;
  }
  measured.first_quartile.exchange_factor = 1;
  measured.profile.exchange_factor = 4.0 / 3;
  measured.third_quartile.exchange_factor = 5.0 / 3;
  measured.also["in_cache_gamma_dense_seconds"] = {1e-10, 2e-10, 3e-10};
  return measured;
}

std::string error_of(const std::function<void()>& body, ErrorKind kind = ErrorKind::bad_input) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

std::string text_with(const std::string& from, const std::string& to) {
  std::string text = profile_text(sample());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& text = "") { std::ofstream(path_) << text; }
  const std::string& path() const { return path_; }

 private:
  const testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path("profile.json");
};

TEST(ProfileFile, reads_back_every_bit_that_it_wrote) {
  const ScratchFile file;
  write_profile(file.path(), sample());
  EXPECT_EQ(read_profile(file.path()), sample());
}

TEST(ProfileFile, has_every_constant_of_a_profile_once) {
  Profile profile{};
  for (const ProfileConstant& constant : profile_constants()) profile.*constant.field = 0;
  for (const ProfileConstant& constant : profile_constants()) profile.*constant.field += 1;
  for (const ProfileConstant& constant : profile_constants()) EXPECT_EQ(profile.*constant.field, 1) << constant.name;
}

TEST(ProfileFile, names_the_file_and_the_field_that_is_wrong) {
  const std::pair<std::string, std::string> changes[] = {
      {"\"version\": 1", "\"version\": 2"},
      {"\"format\": \"tulle profile\"", "\"format\": \"other\""},
      {"\"ranks\": 4", "\"ranks\": 0"},
      {"\"nodes\": 2", "\"nodes\": 1.5"},
      {"\"machine\": ", "\"machine\": 3, \"x\": "},
      {"\"date\"", "\"datum\""},
      {"\"alpha_seconds\"", "\"alpha\""},
      {"\"gamma_rice_seconds\": {", "\"gamma_rice_seconds\": {\"unit\": 1, "},
      {"\"also\": {", "\"also\": {\"x\": 1, "},
  };
  const std::string fields[] = {"'version' is 2",
                                "'format'",
                                "'ranks'",
                                "'nodes'",
                                "'machine' is not a text",
                                "'date' is missing",
                                "'constants.alpha_seconds' is missing",
                                "'constants.gamma_rice_seconds.unit' is not known",
                                "'also.x' is not an object"};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    const std::string text = text_with(changes[i].first, changes[i].second);
    const std::string told = error_of([&] { parse_profile(text, "net.json"); });
    EXPECT_NE(told.find("net.json"), std::string::npos) << told;
    EXPECT_NE(told.find(fields[i]), std::string::npos) << told;
  }
}

TEST(ProfileFile, refuses_exchanges_that_are_faster_than_rings) {
  MeasuredProfile measured = sample();
  measured.first_quartile.exchange_factor = 0.5;
  const std::string text = profile_text(measured);
  const std::string told = error_of([&] { parse_profile(text, "net.json"); });
  EXPECT_NE(told.find("exchange_factor' is below 1"), std::string::npos) << told;
}

TEST(ProfileFile, refuses_fields_that_nobody_knows) {
  const std::string told =
      error_of([] { parse_profile(text_with("\"mpi\": ", "\"color\": 1, \"mpi\": "), "net.json"); });
  EXPECT_NE(told.find("'color' is not known"), std::string::npos) << told;
}

TEST(ProfileFile, refuses_numbers_that_are_no_times) {
  MeasuredProfile negative = sample(), unordered = sample();
  negative.first_quartile.beta_seconds_per_byte = -1;
  unordered.first_quartile.gamma_dense_seconds = 2 * unordered.profile.gamma_dense_seconds;
  EXPECT_NE(error_of([&] {
              parse_profile(profile_text(negative), "f");
            }).find("'constants.beta_seconds_per_byte.first_quartile' is not a number"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              parse_profile(profile_text(unordered), "f");
            }).find("'constants.gamma_dense_seconds' is not between its quartiles"),
            std::string::npos);
}

TEST(ProfileFile, tells_of_text_that_is_no_json_and_of_files_that_are_not_there) {
  EXPECT_NE(error_of([] { parse_profile("{\"format\": ", "net.json"); }).find("net.json: is not JSON"),
            std::string::npos);
  EXPECT_NE(error_of([] { read_profile("/nonexistent/net.json"); }, ErrorKind::system).find("/nonexistent/net.json"),
            std::string::npos);
  EXPECT_NE(error_of([] { read_profile("/"); }, ErrorKind::system).find("profile /"), std::string::npos);
  EXPECT_NE(error_of([] { write_profile("/nonexistent/net.json", sample()); }, ErrorKind::system)
                .find("/nonexistent/net.json"),
            std::string::npos);
}

TEST(LoadProfile, gives_all_ranks_what_rank_0_reads) {
  const ScratchFile file;
  write_profile(file.path(), sample());
  run_threads(5, [&](Communicator& communicator) {
    load_profile(communicator, communicator.rank() == 0 ? file.path() : "not read here");
    EXPECT_EQ(communicator.profile(), sample().profile);
  });
}

TEST(LoadProfile, throws_the_same_on_all_ranks_and_leaves_the_communicator_as_it_was) {
  const ScratchFile file("{}");
  run_threads(3, [&](Communicator& communicator) {
    const Profile before = communicator.profile();
    const std::string told = error_of([&] { load_profile(communicator, file.path()); });
    EXPECT_EQ(told, "profile " + file.path() + ": field 'format' is missing");
    EXPECT_EQ(communicator.profile(), before);
    write_profile(file.path() + std::to_string(communicator.rank()), sample());
    load_profile(communicator, file.path() + "0");
    EXPECT_EQ(communicator.profile(), sample().profile);
    std::remove((file.path() + std::to_string(communicator.rank())).c_str());
  });
}

}  // namespace
}  // namespace tulle
