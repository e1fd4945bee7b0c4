// Files of data sets: what is read from them, and what is said about bad ones.
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/error_of.hpp"
#include "base/temporary_directory.hpp"
#include "tulle/base/error.hpp"
#include "tulle/nn/data.hpp"
#include "tulle/nn/sharding.hpp"

namespace tulle::nn {
namespace {

using testing::error_of;
using testing::TemporaryDirectory;

std::string big_endian(std::uint32_t word) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift & 0xff);
  return bytes;
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string gzip(const std::string& bytes) {
  std::string packed(bytes.size() + 4096, '\0');
  std::size_t used = 0;
  archive* const handle = archive_write_new();
  archive_write_add_filter_gzip(handle);
  archive_write_set_format_raw(handle);
  archive_write_set_bytes_in_last_block(handle, 1);
  archive_write_open_memory(handle, packed.data(), packed.size(), &used);
  archive_entry* const entry = archive_entry_new();
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_write_header(handle, entry);
  archive_write_data(handle, bytes.data(), bytes.size());
  archive_entry_free(entry);
  archive_write_close(handle);
  archive_write_free(handle);
  packed.resize(used);
  return packed;
}

// Three pictures of 2×2 whose pixels count up.
std::string three_pictures() {
  std::string bytes = big_endian(0x0803) + big_endian(3) + big_endian(2) + big_endian(2);
  for (int pixel = 0; pixel < 12; ++pixel) bytes += static_cast<char>(pixel);
  return bytes;
}

std::string three_labels() { return big_endian(0x0801) + big_endian(3) + std::string("\x07\x00\x09", 3); }

std::string read_error(const std::string& pictures, const std::string& labels) {
  const TemporaryDirectory scratch;
  write(scratch.path("images"), pictures);
  write(scratch.path("labels"), labels);
  return error_of([&] { read_idx(scratch.path("images"), scratch.path("labels")); });
}

TEST(Idx, IsReadPlainAndCompressed) {
  const TemporaryDirectory scratch;
  write(scratch.path("plain"), three_pictures());
  write(scratch.path("packed"), gzip(three_pictures()));
  write(scratch.path("labels"), gzip(three_labels()));
  for (const char* const name : {"plain", "packed"}) {
    const Images images = read_idx(scratch.path(name), scratch.path("labels"));
    EXPECT_EQ(images.size(), 3u);
    EXPECT_EQ(images.height, 2u);
    EXPECT_EQ(images.width, 2u);
    EXPECT_EQ(images.pixels[7], 7);
    EXPECT_EQ(images.labels, (std::vector<std::uint8_t>{7, 0, 9}));
  }
}

TEST(Idx, BadFilesAreNamedWithTheByte) {
  EXPECT_NE(read_error("abc", three_labels()).find("images: byte 3: ends in the head"), std::string::npos);
  EXPECT_NE(read_error(three_labels() + three_labels(), three_labels()).find("images: byte 0: the magic number"),
            std::string::npos);
  EXPECT_NE(read_error(three_pictures().substr(0, 20), three_labels()).find("images: byte 20: the head announces 12"),
            std::string::npos);
  EXPECT_NE(read_error(three_pictures() + "x", three_labels()).find("images: byte 28: the head announces 12"),
            std::string::npos);
  const std::string two_labels = big_endian(0x0801) + big_endian(2) + "\x01\x02";
  EXPECT_NE(read_error(three_pictures(), two_labels).find("labels: byte 4: 2 labels for the 3 pictures"),
            std::string::npos);
  const std::string wrong_label = big_endian(0x0801) + big_endian(3) + "\x01\x0a\x02";
  EXPECT_NE(read_error(three_pictures(), wrong_label).find("labels: byte 9: label 10 is not below 10"),
            std::string::npos);
  EXPECT_NE(read_error(gzip(three_pictures()).substr(0, 20), three_labels()).find("images"), std::string::npos);
}

TEST(Cifar10, RecordsAreReadAndPartsOfOneAreTold) {
  const TemporaryDirectory scratch;
  std::string record(3073, '\x05');
  record[0] = '\x03';
  write(scratch.path("two"), record + record);
  write(scratch.path("torn"), record + record.substr(0, 100));
  record[0] = '\x0b';
  write(scratch.path("wrong"), record);
  const std::string paths[] = {scratch.path("two"), scratch.path("two")};
  const Images images = read_cifar10(paths);
  EXPECT_EQ(images.size(), 4u);
  EXPECT_EQ(images.labels[3], 3);
  EXPECT_EQ(images.pixels.size(), 4u * 3072);
  const auto told = [&](const char* name) {
    const std::string path[] = {scratch.path(name)};
    return error_of([&] { read_cifar10(path); });
  };
  EXPECT_NE(told("torn").find("torn: byte 3073: a record of 3073 bytes begins here, and 100 are left"),
            std::string::npos);
  EXPECT_NE(told("wrong").find("wrong: byte 0: label 11"), std::string::npos);
}

TEST(Text, FrequentWordsHaveNumbersAndOthersShareOne) {
  const Vocabulary vocabulary = Vocabulary::of("b a a b c\nb", 4);  // b, a, then the earlier of c and the line's end
  EXPECT_EQ(vocabulary.size(), 4u);
  EXPECT_EQ(vocabulary.numbers_of("b a c\nd"), (std::vector<std::int32_t>{1, 2, 3, 0, 0}));
}

TEST(Text, TheLastTenthIsHeldOutWhereNoOtherTextIs) {
  const TemporaryDirectory scratch;
  write(scratch.path("text"), std::string(900, 'x') + "\n" + std::string(99, 'y'));
  const Text text = read_text(scratch.path("text"), std::nullopt, TextUnit::bytes);
  EXPECT_EQ(text.train.size(), 901u);
  EXPECT_EQ(text.test, std::vector<std::int32_t>(99, 'y'));
  write(scratch.path("short"), "x");
  EXPECT_NE(error_of([&] { read_text(scratch.path("short"), std::nullopt, TextUnit::bytes); }).find("short"),
            std::string::npos);
}

TEST(Ctf, SentencesAreReadAndBadLinesNamed) {
  const TemporaryDirectory scratch;
  write(scratch.path("good"),
        "0\t|S0 178:1 |# BOS\t|S1 14:1 |# flight\t|S2 128:1 |# O\n0 |S0 2:1 |S2 3:1\n7 |S0 1:1 |S1 0:1 |S2 5:1\n");
  const Utterances read = read_ctf(scratch.path("good"));
  EXPECT_EQ(read.size(), 2u);
  EXPECT_EQ(read.words, 179u);
  EXPECT_EQ(read.slots, 129u);
  EXPECT_EQ(read.intents, 15u);
  EXPECT_EQ(read.starts, (std::vector<std::uint64_t>{0, 2, 3}));
  EXPECT_EQ(read.word, (std::vector<std::int32_t>{178, 2, 1}));
  EXPECT_EQ(read.intent, (std::vector<std::int32_t>{14, 0}));
  const auto told = [&](const std::string& text) {
    write(scratch.path("bad"), text);
    return error_of([&] { read_ctf(scratch.path("bad")); });
  };
  const std::string first = "0 |S0 1:1 |S1 0:1 |S2 5:1\n";
  EXPECT_NE(told(first + "x |S0 1:1 |S2 5:1\n").find("bad:2: expected the number of the sentence"), std::string::npos);
  EXPECT_NE(told(first + "0 |S0 y |S2 5:1\n").find("bad:2: expected the number of S0"), std::string::npos);
  EXPECT_NE(told(first + "0 |S0 1:1\n").find("bad:2: expected a word (|S0) and a slot"), std::string::npos);
  EXPECT_NE(told(first + "1 |S0 1:1 |S2 5:1\n").find("bad:2: a sentence begins"), std::string::npos);
  EXPECT_NE(told("\n").find("bad: no sentence"), std::string::npos);
}

TEST(OpenData, MissingFilesAreNamedWithWhereTheyWereLookedFor) {
  const TemporaryDirectory scratch;
  EXPECT_NE(
      error_of([&] { open_data({.name = scratch.path("")}); }).find("no files of MNIST, CIFAR-10, WikiText or ATIS in"),
      std::string::npos);
  EXPECT_NE(error_of([] { open_data({.name = "nothing-of-the-kind"}); }).find("fashion-mnist, mnist, cifar10"),
            std::string::npos);
}

TEST(OpenData, SaysWhichFilesItHasReadAndSamplesHaveAChecksum) {
  const TemporaryDirectory scratch;
  const std::string train = scratch.path("wiki.valid.tokens"), test = scratch.path("wiki.test.tokens");
  write(train, "one two three\n");
  write(test, "one two\n");
  const DataSet data = open_data({.name = scratch.path()});
  EXPECT_EQ(data.train_files, std::vector<std::string>{train});
  EXPECT_EQ(data.test_files, std::vector<std::string>{test});
  const DataSet file = open_data({.name = train, .test_path = test});
  EXPECT_EQ(file.test_files, std::vector<std::string>{test});
  EXPECT_EQ(checksum_of(file), checksum_of(data));
  write(train, "one two two\n");
  EXPECT_NE(checksum_of(open_data({.name = scratch.path()})), checksum_of(data));
  for (const std::string& set : {scratch.path(), std::string("mnist")}) {
    EXPECT_NE(error_of([&] { open_data({.name = set, .test_path = test}); }).find("to measure on of its own"),
              std::string::npos);
  }
}

TEST(OpenData, FashionMnistIsFoundByItself) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "/usr/share/datasets/fashion-mnist is not there";
  }
  const DataSet data = open_data({.name = "fashion-mnist", .test_samples = 100});
  EXPECT_EQ(data.train->size(), 60000u);
  EXPECT_EQ(data.test->size(), 100u);
  EXPECT_EQ(data.train->values(), 784u);
  EXPECT_EQ(data.train->labels[0], 9);  // an ankle boot
}

TEST(OpenData, RealSetsAreReadWhereTheyAre) {
  const char* const chosen = std::getenv("TULLE_DATA_DIR");
  const std::filesystem::path beside = std::filesystem::path(__FILE__).parent_path() / "../../../shared/data";
  const std::filesystem::path directory = chosen != nullptr ? std::filesystem::path(chosen) : beside;
  if (!std::filesystem::exists(directory / "cifar10-test_2000.bin.xz")) {
    GTEST_SKIP() << directory << " has no cifar10-test_2000.bin.xz";
  }
  const std::string paths[] = {(directory / "cifar10-test_2000.bin.xz").string()};
  EXPECT_EQ(read_cifar10(paths).size(), 2000u);
  const Text text = read_text((directory / "wiki.test.tokens.xz").string(), std::nullopt, TextUnit::words, 1000);
  EXPECT_EQ(text.symbols, 1000u);
  EXPECT_GT(text.train.size(), 100'000u);
}

Images counting_picture() {
  Images images = {.height = 4, .width = 4};
  images.pixels.resize(16);
  std::iota(images.pixels.begin(), images.pixels.end(), std::uint8_t{1});
  images.labels = {0};
  return images;
}

TEST(Tables, OfNumbersAreFeaturesWithColumnsOfMeanZeroAndVarianceOne) {
  const TemporaryDirectory scratch;
  write(scratch.path("train.tsv"), "1\t10\tcat\n3 10\tdog\r\n\n5\t10\tcat\n7\t10\tbird\n");
  write(scratch.path("test.tsv"), "4\t11\tdog\n");
  const DataSet read = open_data({.name = scratch.path("train.tsv"), .test_path = scratch.path("test.tsv")});
  ASSERT_TRUE(read.train_features && read.test_features);
  EXPECT_EQ(read.train_features->columns, 2u);
  EXPECT_EQ(read.train_features->classes, 3u);
  EXPECT_EQ(read.train_features->labels, (std::vector<std::int32_t>{0, 1, 0, 2}));
  const float step = 1 / std::sqrt(5.0f);  // 1, 3, 5, 7: mean 4, variance 5
  EXPECT_EQ(read.train_features->values.size(), 8u);
  EXPECT_NEAR(read.train_features->values[0], -3 * step, 1e-6);
  EXPECT_NEAR(read.train_features->values[6], 3 * step, 1e-6);
  EXPECT_EQ(read.train_features->values[1], 0);  // of a column of one value
  EXPECT_EQ(read.test_features->labels, std::vector<std::int32_t>{1});
  EXPECT_NEAR(read.test_features->values[0], 0, 1e-6);
}

TEST(Tables, OfTextsAreSentencesOfWhichTheLastTenthIsHeldOut) {
  const TemporaryDirectory scratch;
  std::string text;
  for (int i = 0; i < 20; ++i) text += i % 2 == 0 ? "play some music\tmusic\n" : "will it rain\tweather\n";
  write(scratch.path("say.tsv"), text);
  const DataSet read = open_data({.name = scratch.path("say.tsv")});
  ASSERT_TRUE(read.train_utterances && read.test_utterances);
  EXPECT_EQ(read.train_utterances->size(), 18u);
  EXPECT_EQ(read.test_utterances->size(), 2u);
  EXPECT_EQ(read.train_utterances->words, 7u);
  EXPECT_EQ(read.test_utterances->intents, 2u);
  EXPECT_EQ(read.test_utterances->intent, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(read.train_utterances->slot[0], kNoSlot);
  EXPECT_EQ(read.test_utterances->starts, (std::vector<std::uint64_t>{0, 3, 6}));
}

TEST(Tables, ThatAreBadAreNamedWithTheLine) {
  const TemporaryDirectory scratch;
  const auto told = [&](const std::string& text) {
    write(scratch.path("bad.tsv"), text);
    return error_of([&] { open_data({.name = scratch.path("bad.tsv")}); });
  };
  const auto expect = [&](const std::string& text, const std::string& words) {
    EXPECT_NE(told(text).find("bad.tsv" + words), std::string::npos) << told(text);
  };
  expect("1\ta\n2 b\n", ":2: expected a tab");
  expect("1\ta\n2\t\n", ":2: expected a label");
  expect("1\ta\n\n\tb\n", ":3: expected numbers or words");
  expect("1\t2\ta\n1\ta\n1\t2\ta\n", ":2: has 1 numbers, and the first line 2");
  expect("1\ta\nx\ta\n1\ta\n", ":2: 'x' is no number");
  expect("1\ta\n1\tb\n", ":2: no sample to train on has the label 'b'");
  expect("1\ta\n", ": one line");
  expect("\n", ": no line");
}

const Normalization kAsItIs = {.means = {0}, .scales = {1}};

TEST(Pictures, AreNormalizedToMeanZeroAndVarianceOne) {
  const Images images = counting_picture();
  std::vector<float> values(16);
  fill_picture(images, 0, normalization_of(images), values);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), 0, 1e-5);
  EXPECT_NEAR(std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / 16, 1, 1e-5);
}

TEST(Pictures, AreCroppedAndFlippedBySeedEpochAndSample) {
  const Images images = counting_picture();
  std::vector<float> first(16), again(16), other(16), plain(16);
  const Augmentation both = {.pad = 1, .flip = true};
  fill_picture(images, 0, kAsItIs, both, 1, 5, first);
  fill_picture(images, 0, kAsItIs, both, 1, 5, again);
  EXPECT_EQ(first, again);
  int changed = 0, flipped = 0;
  fill_picture(images, 0, kAsItIs, plain);
  std::vector<float> mirrored = plain;
  for (int row = 0; row < 4; ++row) std::reverse(mirrored.begin() + 4 * row, mirrored.begin() + 4 * row + 4);
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    fill_picture(images, 0, kAsItIs, both, 1, epoch, other);
    changed += other != first ? 1 : 0;
    fill_picture(images, 0, kAsItIs, {.flip = true}, 1, epoch, other);
    ASSERT_TRUE(other == plain || other == mirrored);
    flipped += other == mirrored ? 1 : 0;
  }
  EXPECT_GT(changed, 35);
  EXPECT_GT(flipped, 10);
  EXPECT_LT(flipped, 40);
}

TEST(Sharding, RanksDivideTheBatchOfOne) {
  Sharding one(103, 1, 20, 7), four(103, 4, 5, 7);
  ASSERT_EQ(one.steps(), 5u);
  ASSERT_EQ(four.steps(), 5u);
  for (const std::uint64_t epoch : {0u, 1u, 0u}) {
    for (std::uint64_t step = 0; step < 5; ++step) {
      const auto all = one.batch(epoch, step, 0);
      std::vector<std::uint32_t> parts;
      for (int rank = 0; rank < 4; ++rank) {
        const auto part = four.batch(epoch, step, rank);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(std::vector<std::uint32_t>(all.begin(), all.end()), parts);
    }
  }
}

TEST(Sharding, AnEpochHasEverySampleAtMostOnceInAnotherOrder) {
  Sharding sharding(100, 2, 10, 3);
  std::vector<std::vector<std::uint32_t>> epochs;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::uint32_t> taken;
    for (std::uint64_t step = 0; step < sharding.steps(); ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        const auto batch = sharding.batch(epoch, step, rank);
        taken.insert(taken.end(), batch.begin(), batch.end());
      }
    }
    epochs.push_back(taken);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& taken : epochs) {
    std::sort(taken.begin(), taken.end());
    for (std::uint32_t i = 0; i < 100; ++i) ASSERT_EQ(taken[i], i);
  }
}

TEST(Sharding, TooFewSamplesForAStepAreTold) {
  EXPECT_NE(error_of([] { Sharding(7, 4, 2, 1); }).find("7 samples are fewer than the 8 of a step"), std::string::npos);
}

}  // namespace
}  // namespace tulle::nn
