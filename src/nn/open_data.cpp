// Data sets by their names: where their files are.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/nn/data.hpp"

namespace tulle::nn {
namespace {

namespace fs = std::filesystem;

// Debian's packages of data sets.
constexpr const char* kDebianDatasets = "/usr/share/datasets";
constexpr std::array<std::string_view, 5> kSets = {"fashion-mnist", "mnist", "cifar10", "wikitext", "atis"};
constexpr const char* kNames =
    "fashion-mnist, mnist, cifar10, wikitext, atis, a directory, a table (.tsv) or a file of text";

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorKind::bad_input, reason); }

// A file by one of its names, plain or compressed.
std::optional<std::string> find_in(const fs::path& directory, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    for (const char* const ending : {"", ".gz", ".xz", ".zst", ".bz2"}) {
      const fs::path path = directory / (std::string(name) + ending);
      if (fs::is_regular_file(path)) return path.string();
    }
  }
  return std::nullopt;
}

// Where the files of a data set may be. `at_hand`: in the directory that TULLE_DATA_DIR names, beside other sets.
std::vector<fs::path> directories_of(const std::string& name, bool at_hand) {
  std::vector<fs::path> directories;
  if (const char* const chosen = std::getenv("TULLE_DATA_DIR")) {
    directories.push_back(fs::path(chosen) / name);
    if (at_hand) directories.emplace_back(chosen);
  }
  directories.push_back(fs::path(kDebianDatasets) / name);
  return directories;
}

std::optional<DataSet> idx_in(const fs::path& directory) {
  const auto train = find_in(directory, {"train-images-idx3-ubyte", "mnist-train-images-idx3-ubyte"});
  const auto train_labels = find_in(directory, {"train-labels-idx1-ubyte", "mnist-train-labels-idx1-ubyte"});
  const auto test = find_in(directory, {"t10k-images-idx3-ubyte", "mnist-t10k-images-idx3-ubyte"});
  const auto test_labels = find_in(directory, {"t10k-labels-idx1-ubyte", "mnist-t10k-labels-idx1-ubyte"});
  if (!train || !train_labels || !test || !test_labels) return std::nullopt;
  return DataSet{.train = read_idx(*train, *train_labels),
                 .test = read_idx(*test, *test_labels),
                 .train_files = {*train, *train_labels},
                 .test_files = {*test, *test_labels}};
}

std::optional<DataSet> cifar10_in(const fs::path& directory) {
  std::vector<std::string> train;
  for (const char* const batch : {"1", "2", "3", "4", "5"}) {
    const std::string plain = std::string("data_batch_") + batch + ".bin", prefixed = "cifar10-" + plain;
    if (const auto path = find_in(directory, {plain.c_str(), prefixed.c_str()})) train.push_back(*path);
  }
  const auto test = find_in(directory, {"test_batch.bin", "cifar10-test_batch.bin", "cifar10-test_2000.bin"});
  if (train.empty() || !test) return std::nullopt;
  const std::string paths[] = {*test};
  return DataSet{
      .train = read_cifar10(train), .test = read_cifar10(paths), .train_files = train, .test_files = {*test}};
}

std::optional<DataSet> wikitext_in(const fs::path& directory, TextUnit unit) {
  const auto train = find_in(directory, {"wiki.train.tokens", "wiki.valid.tokens"});
  const auto test = find_in(directory, {"wiki.test.tokens"});
  if (!train || !test) return std::nullopt;
  return DataSet{.text = read_text(*train, test, unit), .train_files = {*train}, .test_files = {*test}};
}

std::optional<DataSet> atis_in(const fs::path& directory) {
  const auto train = find_in(directory, {"atis.train.ctf"}), test = find_in(directory, {"atis.test.ctf"});
  if (!train || !test) return std::nullopt;
  DataSet data{.train_utterances = read_ctf(*train),
               .test_utterances = read_ctf(*test),
               .train_files = {*train},
               .test_files = {*test}};
  for (const auto field : {&Utterances::words, &Utterances::slots, &Utterances::intents}) {
    (*data.train_utterances).*field = std::max((*data.train_utterances).*field, (*data.test_utterances).*field);
    (*data.test_utterances).*field = (*data.train_utterances).*field;
  }
  return data;
}

template <class Open>
DataSet first_of(const std::string& name, const std::vector<fs::path>& directories, const std::string& files,
                 Open open) {
  std::string looked;
  for (const fs::path& directory : directories) {
    if (std::optional<DataSet> found = open(directory)) return *std::move(found);
    looked += (looked.empty() ? "" : ", ") + directory.string();
  }
  refuse(fmt::format("{}: no {} in {}; TULLE_DATA_DIR or a directory in place of the name says where they are", name,
                     files, looked));
}

// By its name, compressed or not.
bool is_table(const fs::path& path) { return path.extension() == ".tsv" || path.stem().extension() == ".tsv"; }

DataSet open_file(const DataOptions& options) {
  const std::string& name = options.name;
  DataSet data;
  if (is_table(name)) {
    data = read_tsv(name, options.test_path);
  } else {
    data.text = read_text(name, options.test_path, options.unit);
  }
  data.train_files = {name};
  if (options.test_path) data.test_files = {*options.test_path};
  return data;
}

DataSet open_named(const DataOptions& options) {
  const std::string& name = options.name;
  const bool is_set = std::ranges::find(kSets, name) != kSets.end() || fs::is_directory(name);
  if (options.test_path && is_set) {
    refuse(
        fmt::format("{} has samples to measure on of its own: a file to measure on (--test) is for a table (.tsv) or a "
                    "file of text",
                    name));
  }
  if (name == "fashion-mnist") {
    return first_of(name, directories_of(name, false), "idx files (Debian: apt install dataset-fashion-mnist)", idx_in);
  }
  if (name == "mnist") return first_of(name, directories_of(name, true), "idx files", idx_in);
  if (name == "cifar10") {
    return first_of(name, directories_of(name, true), "data_batch_1.bin and test_batch.bin", cifar10_in);
  }
  if (name == "wikitext") {
    return first_of(name, directories_of(name, true), "wiki.train.tokens (or valid) and wiki.test.tokens",
                    [&](const fs::path& directory) { return wikitext_in(directory, options.unit); });
  }
  if (name == "atis") return first_of(name, directories_of(name, true), "atis.train.ctf and atis.test.ctf", atis_in);
  if (fs::is_directory(name)) {
    const auto any = [&](const fs::path& directory) {
      std::optional<DataSet> found = idx_in(directory);
      if (!found) found = cifar10_in(directory);
      if (!found) found = wikitext_in(directory, options.unit);
      if (!found) found = atis_in(directory);
      return found;
    };
    return first_of(name, {name}, "files of MNIST, CIFAR-10, WikiText or ATIS", any);
  }
  if (!fs::exists(name)) refuse(fmt::format("'{}' is none of {}", name, kNames));
  return open_file(options);
}

void keep_first(Images& images, std::uint64_t samples) {
  if (samples == 0 || samples >= images.size()) return;
  images.pixels.resize(samples * images.values());
  images.labels.resize(samples);
}

void keep_first(std::vector<std::int32_t>& symbols, std::uint64_t samples) {
  if (samples > 0 && samples < symbols.size()) symbols.resize(std::max<std::uint64_t>(2, samples));
}

void keep_first(Utterances& utterances, std::uint64_t samples) {
  if (samples == 0 || samples >= utterances.size()) return;
  utterances.intent.resize(samples);
  utterances.starts.resize(samples + 1);
}

void keep_first(Features& features, std::uint64_t samples) {
  if (samples == 0 || samples >= features.size()) return;
  features.values.resize(samples * features.columns);
  features.labels.resize(samples);
}

template <class Value>
std::uint32_t checksum_of(const std::vector<Value>& values, std::uint32_t sum) {
  return crc32c(std::as_bytes(std::span(values)), sum);
}

}  // namespace

std::uint32_t checksum_of(const DataSet& data) {
  std::uint32_t sum = 0;
  for (const auto* const images : {&data.train, &data.test}) {
    if (*images) sum = checksum_of((*images)->labels, checksum_of((*images)->pixels, sum));
  }
  if (data.text) sum = checksum_of(data.text->test, checksum_of(data.text->train, sum));
  for (const auto* const utterances : {&data.train_utterances, &data.test_utterances}) {
    if (!*utterances) continue;
    sum = checksum_of((*utterances)->slot, checksum_of((*utterances)->word, sum));
    sum = checksum_of((*utterances)->intent, checksum_of((*utterances)->starts, sum));
  }
  for (const auto* const features : {&data.train_features, &data.test_features}) {
    if (*features) sum = checksum_of((*features)->labels, checksum_of((*features)->values, sum));
  }
  return sum;
}

DataSet open_data(const DataOptions& options) {
  DataSet data = open_named(options);
  data.name = fs::path(options.name).filename().string();
  if (data.text) {
    keep_first(data.text->train, options.samples);
    keep_first(data.text->test, options.test_samples);
    return data;
  }
  if (data.train_utterances) {
    keep_first(*data.train_utterances, options.samples);
    keep_first(*data.test_utterances, options.test_samples);
    return data;
  }
  if (data.train_features) {
    keep_first(*data.train_features, options.samples);
    keep_first(*data.test_features, options.test_samples);
    return data;
  }
  keep_first(*data.train, options.samples);
  keep_first(*data.test, options.test_samples);
  if (data.train->values() != data.test->values()) {
    refuse(fmt::format("{}: pictures to train on and to measure on differ in size", options.name));
  }
  return data;
}

}  // namespace tulle::nn
