// Data sets for deep networks: images in MNIST's and CIFAR-10's formats, text, sentences and tables. Nothing here knows
// tensors.
//
// Threads: the functions may be called from any thread; what they give does not change and may be read by all ranks of
// a process. Files may be compressed (gzip, xz, zstd, bzip2, lz4). Bytes in messages are counted after unpacking.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace tulle::nn {

/// Pictures of one size with a label each.
struct Images {
  std::uint32_t channels = 1, height = 0, width = 0;
  std::uint32_t classes = 10;
  std::vector<std::uint8_t> pixels;  ///< picture after picture; in each, channel after channel and row after row
  std::vector<std::uint8_t> labels;

  std::uint64_t size() const { return labels.size(); }
  std::uint64_t values() const { return std::uint64_t{channels} * height * width; }  ///< of a picture
};

/// idx, the format of MNIST and Fashion-MNIST. Throws bad_input that names file and byte.
Images read_idx(const std::string& images_path, const std::string& labels_path);
/// CIFAR-10's binary format, one file after the other: a byte of label and 3 × 32 × 32 bytes a picture.
Images read_cifar10(std::span<const std::string> paths);

/// What a text is cut into.
enum class TextUnit : std::uint8_t { words, bytes };

/// Numbers for words. Number 0 is every word that has none of its own.
class Vocabulary {
 public:
  /// The most frequent words of `text`, at most `limit` with number 0; of words as frequent, those that come first.
  static Vocabulary of(const std::string& text, std::uint32_t limit);

  std::uint32_t size() const { return static_cast<std::uint32_t>(numbers_.size()) + 1; }
  /// Words are separated by blanks; the end of a line is a word, too.
  std::vector<std::int32_t> numbers_of(const std::string& text) const;

 private:
  std::map<std::string, std::int32_t, std::less<>> numbers_;
};

/// A text as numbers: to predict each from those before it.
struct Text {
  std::uint32_t symbols = 256;  ///< numbers are below this
  std::vector<std::int32_t> train, test;
};

/// Throws bad_input where a text has fewer than two symbols.
Text read_text(const std::string& train_path, const std::optional<std::string>& test_path, TextUnit unit,
               std::uint32_t vocabulary_limit = 10'000);

/// The slot of a word of which nothing is to be predicted.
inline constexpr std::int32_t kNoSlot = -100;

/// Sentences in which every word has a slot, and which have an intent each: ATIS.
struct Utterances {
  std::uint32_t words = 0, slots = 0, intents = 0;  ///< numbers are below these
  std::vector<std::uint64_t> starts = {0};          ///< of each sentence, and the end of the last
  std::vector<std::int32_t> word, slot;             ///< sentence after sentence
  std::vector<std::int32_t> intent;                 ///< of each sentence

  std::uint64_t size() const { return intent.size(); }
};

/// CNTK's text format with the streams S0 (words), S1 (the intent, on a sentence's first line) and S2 (slots): lines
/// such as `0 |S0 178:1 |S1 14:1 |S2 128:1`, those of a sentence with one number. Throws bad_input that names file and
/// line.
Utterances read_ctf(const std::string& path);

/// Rows of numbers with a label each.
struct Features {
  std::uint32_t columns = 0, classes = 0;
  std::vector<float> values;  ///< row after row
  std::vector<std::int32_t> labels;

  std::uint64_t size() const { return labels.size(); }
};

/// Where data is: images, text, utterances or features, to train on and to measure on.
struct DataSet {
  std::string name;
  std::optional<Images> train, test;  ///< both, for images
  std::optional<Text> text;
  std::optional<Utterances> train_utterances, test_utterances;  ///< both; they count words, slots and intents alike
  std::optional<Features> train_features, test_features;        ///< both; they count columns and classes alike
  std::vector<std::string> train_files,
      test_files;  ///< that it was read from; no test file: the last tenth is held out
};
/// CRC-32C of all samples, by which processes find out whether they read the same.
std::uint32_t checksum_of(const DataSet& data);

/// A table, a sample a line: fields that tabs separate, the last of which is the label, any word. Where all before it
/// in the first line are numbers, separated by tabs or blanks, the samples are features, normalized by column to mean 0
/// and variance 1 over those that are trained on; else they are sentences without slots, whose intent is the label.
/// Without `test_path` the last tenth is held out. Throws bad_input that names file and line.
DataSet read_tsv(const std::string& train_path, const std::optional<std::string>& test_path,
                 std::uint32_t vocabulary_limit = 10'000);

struct DataOptions {
  /// fashion-mnist (Debian's dataset-fashion-mnist, found by itself), mnist, cifar10, wikitext or atis (in the
  /// directory that TULLE_DATA_DIR names), a directory with such files, a table (.tsv), or a file of text.
  std::string name = "fashion-mnist";
  std::optional<std::string> test_path = {};  ///< of text and tables; unset: the last tenth is held out
  TextUnit unit = TextUnit::words;
  std::uint64_t samples = 0;       ///< train on so many pictures, symbols or sentences, from the beginning; 0: all
  std::uint64_t test_samples = 0;  ///< measure on so many; 0: all
};

/// Throws bad_input: files that are missing are named, with where they were looked for; and where a test_path is given
/// to a set that has samples to measure on of its own.
DataSet open_data(const DataOptions& options);

/// How pixels become numbers with mean 0 and variance 1: by channel, over the pictures that are trained on.
struct Normalization {
  std::vector<float> means, scales;  ///< value = (pixel − mean) · scale
};
Normalization normalization_of(const Images& images);

/// What is done to pictures that are trained on.
struct Augmentation {
  std::uint32_t pad = 0;  ///< zeros around the picture, of which as much is cut off again at random
  bool flip = false;      ///< left and right change places in half of the cases
};

/// Writes a picture's values to `values`. What is random depends on seed, epoch and sample alone: not on the ranks.
/// REQUIRES: as many values as images.values().
void fill_picture(const Images& images, std::uint64_t sample, const Normalization& normalization,
                  const Augmentation& augmentation, std::uint64_t seed, std::uint64_t epoch, std::span<float> values);
/// The same as it is in the file.
void fill_picture(const Images& images, std::uint64_t sample, const Normalization& normalization,
                  std::span<float> values);

}  // namespace tulle::nn
#pragma GCC visibility pop
