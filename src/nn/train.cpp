// Trainings by name: samples of a data set as tensors, and a row for each network.
#include "tulle/nn/train.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "nn/models.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/settings.hpp"
#include "tulle/nn/trainer.hpp"

namespace tulle::nn {
namespace {

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorKind::bad_input, reason); }

class ImageData final : public Data {
 public:
  ImageData(std::shared_ptr<const DataSet> set, Augmentation augmentation, std::uint64_t seed)
      : set_(std::move(set)),
        augmentation_(augmentation),
        seed_(seed),
        normalization_(normalization_of(*set_->train)) {}

  std::uint64_t train_samples() const override { return set_->train->size(); }
  std::uint64_t test_samples() const override { return set_->test->size(); }
  Batch train_batch(std::span<const std::uint32_t> samples, std::uint64_t epoch) const override {
    return batch_of(*set_->train, samples, [&](std::uint32_t sample, std::span<float> values) {
      fill_picture(*set_->train, sample, normalization_, augmentation_, seed_, epoch, values);
    });
  }
  Batch test_batch(std::span<const std::uint32_t> samples) const override {
    return batch_of(*set_->test, samples, [&](std::uint32_t sample, std::span<float> values) {
      fill_picture(*set_->test, sample, normalization_, values);
    });
  }

 private:
  template <class Fill>
  static Batch batch_of(const Images& images, std::span<const std::uint32_t> samples, Fill fill) {
    const auto count = static_cast<std::int64_t>(samples.size());
    Batch batch = {torch::empty({count, images.channels, images.height, images.width}),
                   torch::empty({count}, torch::kInt64)};
    float* values = batch.inputs.data_ptr<float>();
    std::int64_t* label = batch.targets.data_ptr<std::int64_t>();
    for (const std::uint32_t sample : samples) {
      fill(sample, std::span(values, images.values()));
      values += images.values();
      *label++ = images.labels[sample];
    }
    return batch;
  }

  std::shared_ptr<const DataSet> set_;
  Augmentation augmentation_;
  std::uint64_t seed_;
  Normalization normalization_;
};

// A sample is `sequence` symbols in a row, and what is to be predicted is each one's successor. What is left over at
// the end is left out.
class TextData final : public Data {
 public:
  TextData(std::shared_ptr<const DataSet> set, std::uint32_t sequence) : set_(std::move(set)), sequence_(sequence) {}

  std::uint64_t train_samples() const override { return (set_->text->train.size() - 1) / sequence_; }
  std::uint64_t test_samples() const override { return (set_->text->test.size() - 1) / sequence_; }
  Batch train_batch(std::span<const std::uint32_t> samples, std::uint64_t) const override {
    return batch_of(set_->text->train, samples);
  }
  Batch test_batch(std::span<const std::uint32_t> samples) const override {
    return batch_of(set_->text->test, samples);
  }

 private:
  Batch batch_of(const std::vector<std::int32_t>& symbols, std::span<const std::uint32_t> samples) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    Batch batch = {torch::empty({count, sequence_}, torch::kInt64), torch::empty({count, sequence_}, torch::kInt64)};
    std::int64_t* input = batch.inputs.data_ptr<std::int64_t>();
    std::int64_t* target = batch.targets.data_ptr<std::int64_t>();
    for (const std::uint32_t sample : samples) {
      const std::int32_t* const from = symbols.data() + std::uint64_t{sample} * sequence_;
      input = std::copy_n(from, sequence_, input);
      target = std::copy_n(from + 1, sequence_, target);
    }
    return batch;
  }

  std::shared_ptr<const DataSet> set_;
  std::uint32_t sequence_;
};

// Sentences of a batch are filled up to the longest; the filling is not predicted. The last target is the intent, whose
// number follows those of the slots.
class UtteranceData final : public Data {
 public:
  explicit UtteranceData(std::shared_ptr<const DataSet> set) : set_(std::move(set)) {}

  std::uint64_t train_samples() const override { return set_->train_utterances->size(); }
  std::uint64_t test_samples() const override { return set_->test_utterances->size(); }
  Batch train_batch(std::span<const std::uint32_t> samples, std::uint64_t) const override {
    return batch_of(*set_->train_utterances, samples);
  }
  Batch test_batch(std::span<const std::uint32_t> samples) const override {
    return batch_of(*set_->test_utterances, samples);
  }
  double train_predictions(std::span<const std::uint32_t> samples) const override {
    const Utterances& all = *set_->train_utterances;
    double predictions = 0;
    for (const std::uint32_t sample : samples) {
      const auto slots = std::span(all.slot).subspan(all.starts[sample], all.starts[sample + 1] - all.starts[sample]);
      const auto is_predicted = [](std::int32_t slot) { return slot != kNoSlot; };
      predictions += 1 + static_cast<double>(std::ranges::count_if(slots, is_predicted));  // the intent is one
    }
    return predictions;
  }

 private:
  static Batch batch_of(const Utterances& all, std::span<const std::uint32_t> samples) {
    std::uint64_t longest = 1;
    for (const std::uint32_t sample : samples) longest = std::max(longest, all.starts[sample + 1] - all.starts[sample]);
    const auto count = static_cast<std::int64_t>(samples.size()), length = static_cast<std::int64_t>(longest);
    Batch batch = {torch::full({count, length}, kNoTarget, torch::kInt64),
                   torch::full({count, length + 1}, kNoTarget, torch::kInt64)};
    std::int64_t* input = batch.inputs.data_ptr<std::int64_t>();
    std::int64_t* target = batch.targets.data_ptr<std::int64_t>();
    for (const std::uint32_t sample : samples) {
      const std::uint64_t from = all.starts[sample], words = all.starts[sample + 1] - from;
      std::copy_n(all.word.begin() + static_cast<std::ptrdiff_t>(from), words, input);
      std::copy_n(all.slot.begin() + static_cast<std::ptrdiff_t>(from), words, target);
      target[longest] = static_cast<std::int64_t>(all.slots) + all.intent[sample];
      input += longest;
      target += longest + 1;
    }
    return batch;
  }

  std::shared_ptr<const DataSet> set_;
};

// Rows of numbers with their labels.
class FeatureData final : public Data {
 public:
  explicit FeatureData(std::shared_ptr<const DataSet> set) : set_(std::move(set)) {}

  std::uint64_t train_samples() const override { return set_->train_features->size(); }
  std::uint64_t test_samples() const override { return set_->test_features->size(); }
  Batch train_batch(std::span<const std::uint32_t> samples, std::uint64_t) const override {
    return batch_of(*set_->train_features, samples);
  }
  Batch test_batch(std::span<const std::uint32_t> samples) const override {
    return batch_of(*set_->test_features, samples);
  }

 private:
  static Batch batch_of(const Features& features, std::span<const std::uint32_t> samples) {
    const auto count = static_cast<std::int64_t>(samples.size());
    Batch batch = {torch::empty({count, features.columns}), torch::empty({count}, torch::kInt64)};
    float* values = batch.inputs.data_ptr<float>();
    std::int64_t* label = batch.targets.data_ptr<std::int64_t>();
    for (const std::uint32_t sample : samples) {
      values = std::copy_n(features.values.data() + std::uint64_t{sample} * features.columns, features.columns, values);
      *label++ = features.labels[sample];
    }
    return batch;
  }

  std::shared_ptr<const DataSet> set_;
};

static_assert(kNoSlot == kNoTarget);

enum class Takes { pictures, small_pictures, text, utterances, features };

struct Row {
  ModelRow shown;
  Takes takes;
  Network (*make)(const NetworkOptions&, const DataSet&);
};

Network mlp(const NetworkOptions& options, const DataSet& data) {
  const bool has_features = data.train_features.has_value();
  const std::uint64_t inputs = has_features ? data.train_features->columns : data.train->values();
  std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(inputs)};
  const std::vector<std::int64_t> hidden =
      options.hidden.empty() ? std::vector<std::int64_t>{512, 512} : options.hidden;
  sizes.insert(sizes.end(), hidden.begin(), hidden.end());
  sizes.push_back(has_features ? data.train_features->classes : data.train->classes);
  return make_mlp(sizes);
}

Network cnn(const NetworkOptions&, const DataSet& data) {
  return make_cnn(data.train->channels, data.train->height, data.train->width, data.train->classes);
}

template <int kDepth>
Network resnet(const NetworkOptions&, const DataSet& data) {
  return make_resnet(kDepth, data.train->channels, data.train->classes);
}

template <int kDepth>
Network vgg(const NetworkOptions&, const DataSet& data) {
  return make_vgg(kDepth, data.train->channels, data.train->classes);
}

Network lstm(const NetworkOptions& options, const DataSet& data) {
  return make_lstm(data.text->symbols, options.hidden.empty() ? 200 : options.hidden[0], options.dropout);
}

Network tagger(const NetworkOptions& options, const DataSet& data) {
  const Utterances& all = *data.train_utterances;
  return make_tagger(all.words, all.slots, all.intents, options.hidden.empty() ? 128 : options.hidden[0],
                     options.dropout);
}

Network transformer(const NetworkOptions& options, const DataSet& data) {
  return make_transformer(data.text->symbols, options.hidden.empty() ? 128 : options.hidden[0], options.sequence);
}

constexpr std::array<Row, 10> kRows = {{
    {{"mlp", "pictures, tables", "linear layers, --hidden between (512,512; SparCML's: 4096,4096)"},
     Takes::pictures,
     mlp},
    {{"cnn", "pictures", "two convolutions and two linear layers"}, Takes::pictures, cnn},
    {{"resnet20", "pictures of 32x32", "He et al., 0.27M weights"}, Takes::small_pictures, resnet<20>},
    {{"resnet44", "pictures of 32x32", "He et al., 0.66M weights"}, Takes::small_pictures, resnet<44>},
    {{"resnet110", "pictures of 32x32", "He et al., 1.7M weights"}, Takes::small_pictures, resnet<110>},
    {{"vgg16", "pictures of 32x32", "with BatchNorm, 14.7M weights"}, Takes::small_pictures, vgg<16>},
    {{"vgg19", "pictures of 32x32", "with BatchNorm, 20M weights"}, Takes::small_pictures, vgg<19>},
    {{"lstm", "words", "two layers of --hidden (200): predicts the next word"}, Takes::text, lstm},
    {{"tagger", "sentences", "two layers of LSTM of --hidden (128): slots and intents of ATIS, labels of tables"},
     Takes::utterances,
     tagger},
    {{"transformer", "bytes", "two layers of --hidden (128), 4 heads: predicts the next byte"},
     Takes::text,
     transformer},
}};

const std::array<ModelRow, kRows.size()>& shown_rows() {
  static const auto rows = [] {
    std::array<ModelRow, kRows.size()> shown;
    std::ranges::transform(kRows, shown.begin(), [](const Row& row) { return row.shown; });
    return shown;
  }();
  return rows;
}

const Row& row_of(std::string_view name) {
  std::string names;
  for (const Row& row : kRows) {
    if (row.shown.name == name) return row;
    names += (names.empty() ? "" : ", ") + std::string(row.shown.name);
  }
  refuse(fmt::format("'{}' is not one of {}", name, names));
}

// Torch's generator is one for the process, and ranks may be threads: they take turns, each from the seed on.
Network seeded(const Row& row, const NetworkOptions& options, const DataSet& data, std::uint64_t seed) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  return row.make(options, data);
}

Augmentation augmentation_of(const NetworkOptions& options, const Row& row) {
  const Augmentation usual = row.takes == Takes::small_pictures ? Augmentation{.pad = 4, .flip = true} : Augmentation{};
  return options.augmentation.value_or(usual);
}

Takes kind_of(const DataSet& data) {
  if (data.text) return Takes::text;
  if (data.train_utterances) return Takes::utterances;
  return data.train_features ? Takes::features : Takes::pictures;
}

std::string_view name_of(Takes kind) {
  switch (kind) {
    case Takes::text: return "text";
    case Takes::utterances: return "sentences";
    case Takes::features: return "a table of numbers";
    default: return "pictures";
  }
}

std::string text_of(const std::vector<std::int64_t>& sizes) {
  return sizes.empty() ? "usual" : fmt::format("{}", fmt::join(sizes, ","));
}

std::string text_of(const std::optional<Augmentation>& augmentation) {
  if (!augmentation) return "usual";
  return fmt::format("{} pixels of padding{}", augmentation->pad, augmentation->flip ? ", flips" : "");
}

// By content, because files may have other names and places on other hosts.
std::vector<Setting> settings_of(const NetworkOptions& network, const std::string& data,
                                 const TrainerOptions& options) {
  return {{"servers", fmt::format("{}", options.server.servers)},
          {"model", network.model},
          {"data", data},
          {"hidden", text_of(network.hidden)},
          {"sequence", fmt::format("{}", network.sequence)},
          {"dropout", fmt::format("{}", network.dropout)},
          {"augmentation", text_of(network.augmentation)}};
}

}  // namespace

std::span<const ModelRow> models() { return shown_rows(); }

TextUnit unit_of(std::string_view model) { return model == "transformer" ? TextUnit::bytes : TextUnit::words; }

void require_fit(const NetworkOptions& network, const DataSet& data) {
  const Row& row = row_of(network.model);
  const bool is_text = row.takes == Takes::text;
  const Takes has = kind_of(data);
  const bool fits = has == (row.takes == Takes::small_pictures ? Takes::pictures : row.takes);
  if (!fits && !(has == Takes::features && network.model == "mlp")) {
    refuse(fmt::format("{} takes {}, and {} has {}", network.model, row.shown.data, data.name, name_of(has)));
  }
  if (row.takes == Takes::small_pictures && (data.train->height != 32 || data.train->width != 32)) {
    refuse(fmt::format("{} takes {}, and those of {} have {}x{}", network.model, row.shown.data, data.name,
                       data.train->height, data.train->width));
  }
  if (network.sequence == 0) refuse("sequence: fewer than 1");
  if (is_text && std::min(data.text->train.size(), data.text->test.size()) <= network.sequence) {
    refuse(fmt::format("{} is shorter than a sample of {} symbols", data.name, network.sequence));
  }
  if (network.augmentation && kind_of(data) != Takes::pictures) {
    refuse(fmt::format("augment: {} has {}, and no pictures to crop and flip", data.name, name_of(has)));
  }
  const bool has_dropout = network.model == "lstm" || network.model == "tagger";
  if (network.dropout > 0 && !has_dropout) refuse(fmt::format("dropout: {} has none", network.model));
  const bool takes_one = row.takes == Takes::text || row.takes == Takes::utterances;
  if (network.model != "mlp" && !takes_one && !network.hidden.empty()) {
    refuse(fmt::format("hidden: {} has no sizes to choose", network.model));
  }
  if (takes_one && network.hidden.size() > 1) {
    refuse(fmt::format("hidden: {} takes one size, and not {}", network.model, network.hidden.size()));
  }
  for (const std::int64_t size : network.hidden) {
    if (size < 1 || size > 65536) refuse(fmt::format("hidden: a layer of {}", size));
  }
  if (network.model == "transformer" && !network.hidden.empty() && network.hidden[0] % 4 != 0) {
    refuse(fmt::format("hidden: {} is no multiple of the 4 heads", network.hidden[0]));
  }
}

TrainResult train(Communicator communicator, const NetworkOptions& network, const std::shared_ptr<const DataSet>& data,
                  const TrainerOptions& options) {
  const std::string description = fmt::format("{}, checksum {:08x}", name_of(kind_of(*data)), checksum_of(*data));
  const bool is_newcomer = options.server.place.has_value();  // others are in the middle of their training
  if (!is_newcomer) require_same_settings(communicator, settings_of(network, description, options));
  require_fit(network, *data);
  const Row& row = row_of(network.model);
  const Network made = seeded(row, network, *data, options.seed);
  std::shared_ptr<const Data> samples;
  if (data->text) {
    samples = std::make_shared<TextData>(data, network.sequence);
  } else if (data->train_utterances) {
    samples = std::make_shared<UtteranceData>(data);
  } else if (data->train_features) {
    samples = std::make_shared<FeatureData>(data);
  } else {
    samples = std::make_shared<ImageData>(data, augmentation_of(network, row), options.seed);
  }
  const LossFunction loss = [forward = made.forward](const Batch& batch) {
    return classification(forward(batch.inputs), batch.targets);
  };
  TrainerOptions all = options;
  if (options.server.servers > 0) all.server.data = "data of " + description;
  Trainer trainer(std::move(communicator), made.module, loss, samples, all);
  return trainer.train();
}

}  // namespace tulle::nn
