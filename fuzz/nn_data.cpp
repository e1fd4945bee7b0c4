// What deep networks are trained on, in every format, and where a training was: what is read can be used.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "fuzz/fuzz.hpp"
#include "nn/run_state.hpp"
#include "tulle/nn/data.hpp"

using namespace tulle;
using namespace tulle::nn;

namespace {

// A file in memory with a path.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(file_)) {}

  const std::string& with(const fuzz::Bytes& bytes) const {
    const bool is_cut = ::ftruncate(file_, static_cast<off_t>(bytes.size())) == 0;
    const bool is_written = ::pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    fuzz::require(is_cut && is_written, "memory can be written");
    return path_;
  }

 private:
  int file_;
  std::string path_;
};

const MemoryFile& first_file() {
  static const MemoryFile file;
  return file;
}
const MemoryFile& second_file() {
  static const MemoryFile file;
  return file;
}

void use(const Images& images) {
  fuzz::require(images.pixels.size() == images.size() * images.values(), "every picture has its pixels");
  if (images.size() == 0) return;
  std::vector<float> values(images.values());
  fill_picture(images, images.size() - 1, normalization_of(images), {.pad = 2, .flip = true}, 1, 1, values);
}

void use(const Utterances& utterances) {
  const auto is_below = [](const std::vector<std::int32_t>& numbers, std::uint32_t bound) {
    return std::ranges::all_of(numbers, [&](std::int32_t number) {
      return number == kNoSlot || (number >= 0 && static_cast<std::uint32_t>(number) < bound);
    });
  };
  fuzz::require(is_below(utterances.word, utterances.words) && is_below(utterances.slot, utterances.slots) &&
                    is_below(utterances.intent, utterances.intents),
                "numbers are below their bounds");
  fuzz::require(std::ranges::is_sorted(utterances.starts) && utterances.starts.back() == utterances.word.size() &&
                    utterances.starts.size() == utterances.size() + 1 &&
                    utterances.slot.size() == utterances.word.size(),
                "sentences follow one another");
}

void use(const Features& features) {
  fuzz::require(features.values.size() == features.size() * features.columns, "every row has its columns");
  fuzz::require(std::ranges::all_of(features.values, [](float value) { return value - value == 0; }),
                "what is trained on is finite");
  fuzz::require(std::ranges::all_of(features.labels,
                                    [&](std::int32_t label) {
                                      return label >= 0 && static_cast<std::uint32_t>(label) < features.classes;
                                    }),
                "labels are below their number");
}

void use(const DataSet& data) {
  if (data.train_features) use(*data.train_features), use(*data.test_features);
  if (data.train_utterances) use(*data.train_utterances), use(*data.test_utterances);
}

void use(const Text& text) {
  for (const std::vector<std::int32_t>* const part : {&text.train, &text.test}) {
    fuzz::require(std::ranges::all_of(*part,
                                      [&](std::int32_t symbol) {
                                        return symbol >= 0 && static_cast<std::uint32_t>(symbol) < text.symbols;
                                      }),
                  "symbols are below their number");
  }
}

void read_state(const fuzz::Bytes& bytes) {
  const std::string json(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Facts facts = {{"model", "mlp"}};
  const std::string written = to_json(run_from_json(json, facts, "fuzz"), facts);
  fuzz::require(to_json(run_from_json(written, facts, "fuzz"), facts) == written,
                "a state says the same when it is written again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int choice = input.take<std::uint8_t>() % 8;
  const std::size_t cut = input.take<std::uint16_t>();
  const fuzz::Bytes one = input.take_bytes(cut), other = input.rest();
  fuzz::read_hostile([&] {
    const std::string& path = first_file().with(one);
    switch (choice) {
      case 0: return use(read_idx(path, second_file().with(other)));
      case 1: return use(read_cifar10(std::span(&path, 1)));
      case 2: return use(read_ctf(path));
      case 3: return use(read_tsv(path, std::nullopt));
      case 4: return use(read_tsv(path, second_file().with(other), 3));
      case 5: return use(read_text(path, std::nullopt, TextUnit::words, 4));
      case 6: return use(read_text(path, second_file().with(other), TextUnit::bytes));
      default: return read_state(one);
    }
  });
  return 0;
}
