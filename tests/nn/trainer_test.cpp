// Networks of torch on ranks that are threads.
#include "tulle/nn/trainer.hpp"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "base/error_of.hpp"
#include "base/temporary_directory.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/nn/train.hpp"

namespace tulle::nn {
namespace {

using testing::error_of;
using testing::TemporaryDirectory;

std::vector<float> values_of(const torch::nn::Module& module) {
  std::vector<float> values;
  for (const torch::Tensor& tensor : module.parameters()) {
    const float* const from = tensor.data_ptr<float>();
    values.insert(values.end(), from, from + tensor.numel());
  }
  return values;
}

// Whole numbers from -1 to 1, and what a linear model of whole numbers makes of them.
std::shared_ptr<const Data> whole_numbers() {
  torch::Tensor inputs = torch::empty({64, 6}), targets = torch::empty({64, 2});
  Philox dice(3);
  for (torch::Tensor* const tensor : {&inputs, &targets}) {
    for (std::int64_t i = 0; i < tensor->numel(); ++i) {
      tensor->data_ptr<float>()[i] = static_cast<float>(dice.below(3)) - 1;
    }
  }
  return tensor_data({inputs, targets}, {inputs, targets});
}

std::vector<float> linear_weights(int ranks, const std::string& recipe, bool overlap) {
  const auto data = whole_numbers();
  std::vector<float> weights;
  run_threads(ranks, [&](Communicator& communicator) {
    torch::nn::Linear linear(6, 2);
    {
      const torch::NoGradGuard guard;
      linear->weight.zero_();
      linear->bias.zero_();
    }
    TrainerOptions options{.recipe = gradient::parse_recipe(recipe), .rate = 0.5, .scale_rate = false};
    options.batch = static_cast<std::uint32_t>(8 / ranks);
    options.steps_of_epoch = 3;
    options.overlap = overlap;
    const LossFunction loss = [linear](const Batch& batch) mutable {
      return regression(linear->forward(batch.inputs), batch.targets);
    };
    Trainer(communicator, linear.ptr(), loss, data, options).train();
    if (communicator.rank() == 0) weights = values_of(*linear);
  });
  return weights;
}

TEST(Trainer, ALinearModelOnRanksIsThatOfOneProcessBitForBit) {
  const std::vector<float> alone = linear_weights(1, "dense", true);
  EXPECT_NE(alone, std::vector<float>(alone.size()));
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(linear_weights(ranks, "dense", true), alone);
    EXPECT_EQ(linear_weights(ranks, "topk:100%|dense_below:0", false), alone);
  }
}

// Pictures of 8×8 in which the label says where the light is.
std::shared_ptr<const DataSet> small_pictures(std::uint64_t count) {
  auto data = std::make_shared<DataSet>();
  data->name = "lights";
  for (auto* const images : {&data->train, &data->test}) {
    images->emplace(Images{.height = 8, .width = 8});
    Philox dice(images == &data->train ? 5 : 6);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t label = dice.below(10);
      for (std::uint64_t pixel = 0; pixel < 64; ++pixel) {
        (*images)->pixels.push_back(static_cast<std::uint8_t>(dice.below(128) + (pixel / 6 == label ? 100 : 0)));
      }
      (*images)->labels.push_back(static_cast<std::uint8_t>(label));
    }
  }
  return data;
}

TrainerOptions short_run(const std::string& recipe) {
  TrainerOptions options{.recipe = gradient::parse_recipe(recipe), .rate = 0.01};
  options.batch = 8;
  options.epochs = 2;
  options.optimizer.momentum = 0.9;
  return options;
}

TrainResult trained(int ranks, const NetworkOptions& network, const std::shared_ptr<const DataSet>& data,
                    const TrainerOptions& options, bool progress_thread = false) {
  TrainResult result;
  run_threads(ranks, [&](Communicator& communicator) {
    if (progress_thread) communicator.start_progress_thread();
    TrainResult mine = train(communicator, network, data, options);
    if (communicator.rank() == 0) result = std::move(mine);
  });
  return result;
}

// All that does not depend on the clock.
std::vector<double> trajectory(const TrainResult& result) {
  std::vector<double> numbers;
  for (const EpochMetrics& epoch : result.epochs) {
    numbers.insert(numbers.end(), {epoch.loss, epoch.held_out.loss, epoch.held_out.accuracy, epoch.rate});
  }
  return numbers;
}

TEST(Trainer, ARunRepeatsItselfAndIsTheSameWithAndWithoutOverlap) {
  const auto data = small_pictures(320);
  for (const char* const recipe : {"topk:5%|dense_below:0", "redsync:5%|dense_below:0", "topk:16/512|qsgd:4"}) {
    TrainerOptions options = short_run(recipe);
    const NetworkOptions network{.hidden = {48}};
    const std::vector<double> first = trajectory(trained(4, network, data, options));
    EXPECT_EQ(trajectory(trained(4, network, data, options)), first) << recipe;
    EXPECT_EQ(trajectory(trained(4, network, data, options, /*progress_thread=*/true)), first) << recipe;
    options.overlap = false;
    EXPECT_EQ(trajectory(trained(4, network, data, options)), first) << recipe;
    options.seed = 2;
    EXPECT_NE(trajectory(trained(4, network, data, options)), first) << recipe;
  }
}

TEST(Trainer, RanksFollowOneProcessWithTheWholeBatchToRounding) {
  const auto data = small_pictures(320);
  TrainerOptions options = short_run("dense");
  options.scale_rate = false;
  options.rate = 0.02;
  const std::vector<double> four = trajectory(trained(4, {.hidden = {48}}, data, options));
  options.batch = 32;
  const std::vector<double> one = trajectory(trained(1, {.hidden = {48}}, data, options));
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 1e-4) << i;
}

// Sentences of 1 to 9 words: ranks have another number of words each, and fill their batches up to other lengths.
std::shared_ptr<const DataSet> uneven_sentences(int count) {
  auto data = std::make_shared<DataSet>();
  data->name = "sentences";
  data->train_utterances.emplace(Utterances{.words = 6, .slots = 3, .intents = 2});
  Philox dice(11);
  for (int i = 0; i < count; ++i) {
    for (std::uint64_t words = 1 + dice.below(9); words > 0; --words) {
      data->train_utterances->word.push_back(static_cast<std::int32_t>(dice.below(6)));
      data->train_utterances->slot.push_back(data->train_utterances->word.back() / 2);
    }
    data->train_utterances->starts.push_back(data->train_utterances->word.size());
    data->train_utterances->intent.push_back(static_cast<std::int32_t>(dice.below(2)));
  }
  data->test_utterances = data->train_utterances;
  return data;
}

TEST(Trainer, ATaggerOnRanksFollowsOneProcessThoughSentencesDifferInLength) {
  const auto data = uneven_sentences(96);
  TrainerOptions options = short_run("dense");
  options.scale_rate = false;
  options.rate = 0.1;
  options.batch = 24;
  const NetworkOptions network{.model = "tagger", .hidden = {8}};
  const std::vector<double> one = trajectory(trained(1, network, data, options));
  for (const int ranks : {2, 4, 8}) {
    options.batch = static_cast<std::uint32_t>(24 / ranks);
    const std::vector<double> many = trajectory(trained(ranks, network, data, options));
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 2e-5) << ranks << " ranks, " << i;
  }
}

TEST(Trainer, AResumedNetworkGoesOnBitForBit) {
  const auto data = small_pictures(320);
  const TemporaryDirectory scratch;
  TrainerOptions options = short_run("topk:5%|dense_below:0");
  const std::vector<double> whole = trajectory(trained(2, {.hidden = {32}}, data, options));
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  TrainerOptions stopping = options;
  std::atomic<int> steps = 0;
  stopping.stop_requested = [&] { return ++steps > 20; };
  EXPECT_TRUE(trained(2, {.hidden = {32}}, data, stopping).was_stopped);
  const TrainResult resumed = trained(2, {.hidden = {32}}, data, options);
  EXPECT_TRUE(resumed.was_resumed);
  EXPECT_EQ(trajectory(resumed), whole);
}

TEST(Trainer, DropoutRepeatsItselfBySeedOnThreads) {
  auto data = std::make_shared<DataSet>();
  data->name = "text";
  data->text.emplace(Text{.symbols = 7});
  Philox dice(1);
  for (int i = 0; i < 600; ++i) data->text->train.push_back(static_cast<std::int32_t>(i % 7));
  data->text->test.assign(data->text->train.begin(), data->text->train.begin() + 100);
  const NetworkOptions network{.model = "lstm", .hidden = {16}, .sequence = 10, .dropout = 0.3};
  TrainerOptions options = short_run("topk:10%|dense_below:0");
  options.batch = 2;
  options.clip_norm = 1;
  const std::vector<double> first = trajectory(trained(3, network, data, options));
  EXPECT_EQ(trajectory(trained(3, network, data, options)), first);
}

// A few samples of what a network takes.
std::shared_ptr<const DataSet> samples_for(const ModelRow& row) {
  auto pictures = std::make_shared<DataSet>();
  pictures->name = "noise";
  for (auto* const images : {&pictures->train, &pictures->test}) {
    images->emplace(Images{.channels = 3, .height = 32, .width = 32});
    (*images)->labels.assign(4, 1);
    (*images)->pixels.resize(4 * 3072);
    Philox dice(1);
    for (std::uint8_t& pixel : (*images)->pixels) pixel = static_cast<std::uint8_t>(dice.below(256));
  }
  auto text = std::make_shared<DataSet>();
  text->name = "text";
  text->text.emplace(Text{.symbols = 256, .train = std::vector<std::int32_t>(200, 65)});
  text->text->test = text->text->train;
  auto sentences = std::make_shared<DataSet>();
  sentences->name = "sentences";
  sentences->train_utterances.emplace(Utterances{.words = 3, .slots = 2, .intents = 2, .starts = {0, 3, 4, 6, 7}});
  sentences->train_utterances->word = {0, 1, 2, 2, 1, 0, 1};
  sentences->train_utterances->slot = {0, 1, 0, 1, 1, 0, 0};
  sentences->train_utterances->intent = {1, 0, 1, 0};
  sentences->test_utterances = sentences->train_utterances;
  if (row.data == "words" || row.data == "bytes") return text;
  return row.data == "sentences" ? sentences : pictures;
}

TEST(Networks, AllThatHaveNamesTakeAStep) {
  for (const ModelRow& row : models()) {
    TrainerOptions options{.recipe = gradient::parse_recipe("topk:1%"), .rate = 0.01};
    options.batch = 1;
    options.steps_of_epoch = 1;
    const TrainResult result = trained(2, {.model = std::string(row.name), .sequence = 8}, samples_for(row), options);
    ASSERT_EQ(result.epochs.size(), 1u) << row.name;
    EXPECT_TRUE(std::isfinite(result.epochs[0].loss)) << row.name;
    EXPECT_GT(result.epochs[0].bytes_sent, 0) << row.name;
  }
}

// An update that came too late for its layer would change the second step.
TEST(Networks, OverlapChangesNoBitOfAnyKindOfLayer) {
  for (const ModelRow& row : models()) {
    if (row.name == "resnet110" || row.name == "resnet44" || row.name.starts_with("vgg")) continue;  // as resnet20
    TrainerOptions options{.recipe = gradient::parse_recipe("dense"), .rate = 0.05};
    options.batch = 1;
    options.steps_of_epoch = 2;
    const NetworkOptions network{.model = std::string(row.name), .sequence = 8};
    const std::vector<double> overlapped = trajectory(trained(2, network, samples_for(row), options));
    options.overlap = false;
    EXPECT_EQ(trajectory(trained(2, network, samples_for(row), options)), overlapped) << row.name;
  }
}

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    const std::vector<float> before = values_of(*second);
    const torch::Tensor between = first(inputs);
    if (is_training()) changed_by_first += values_of(*second) != before ? 1 : 0;
    const torch::Tensor outputs = second(between);
    if (is_training()) changed_by_second += values_of(*second) != before ? 1 : 0;
    return outputs;
  }
  torch::nn::Linear first{6, 4}, second{4, 2};
  int changed_by_first = 0, changed_by_second = 0;
};

TEST(Trainer, AnUpdateOfAUsersModuleIsAppliedWhenItsLayerRuns) {
  run_threads(2, [](Communicator& communicator) {
    const auto module = std::make_shared<TwoLayers>();
    const LossFunction loss = [module](const Batch& batch) {
      return regression(module->forward(batch.inputs), batch.targets);
    };
    TrainerOptions options{.rate = 0.1, .batch = 8};
    options.steps_of_epoch = 4;
    Trainer(communicator, module, loss, whole_numbers(), options).train();
    EXPECT_EQ(module->changed_by_first, 0);
    EXPECT_EQ(module->changed_by_second, 3);  // all steps but the first
  });
}

TEST(Trainer, OneWorkerOfAParameterServerIsLocalTrainingBitForBit) {
  const auto data = small_pictures(160);
  TrainerOptions options = short_run("dense");
  options.optimizer.weight_decay = 1e-3;
  const std::vector<double> alone = trajectory(trained(1, {.hidden = {32}}, data, options));
  options.server = {.servers = 1, .deadline_seconds = 60};
  EXPECT_EQ(trajectory(trained(2, {.hidden = {32}}, data, options)), alone);
}

TEST(Trainer, TablesTrainAPerceptronAndATagger) {
  auto numbers = std::make_shared<DataSet>();
  numbers->name = "numbers.tsv";
  numbers->train_features.emplace(Features{.columns = 3, .classes = 2});
  Philox dice(9);
  for (int i = 0; i < 200; ++i) {
    for (int j = 0; j < 3; ++j) numbers->train_features->values.push_back(static_cast<float>(dice.uniform()) - 0.5f);
    numbers->train_features->labels.push_back(
        numbers->train_features->values[numbers->train_features->values.size() - 3] > 0);
  }
  numbers->test_features = numbers->train_features;
  TrainerOptions options = short_run("dense");
  options.epochs = 8;
  options.rate = 0.05;
  EXPECT_GT(trained(2, {.hidden = {16}}, numbers, options).epochs.back().held_out.accuracy, 0.9);
  EXPECT_NE(error_of([&] { require_fit({.model = "cnn"}, *numbers); }).find("has a table of numbers"),
            std::string::npos);
  auto texts = std::make_shared<DataSet>();
  texts->name = "texts.tsv";
  texts->train_utterances.emplace(Utterances{.words = 4, .slots = 1, .intents = 2});
  for (int i = 0; i < 160; ++i) {  // the first word says it
    const std::int32_t label = static_cast<std::int32_t>(dice.below(2));
    texts->train_utterances->word.insert(texts->train_utterances->word.end(), {label + 1, 3, 3});
    texts->train_utterances->slot.insert(texts->train_utterances->slot.end(), 3, kNoSlot);
    texts->train_utterances->starts.push_back(texts->train_utterances->word.size());
    texts->train_utterances->intent.push_back(label);
  }
  texts->test_utterances = texts->train_utterances;
  const Evaluation found = trained(2, {.model = "tagger", .hidden = {8}}, texts, options).epochs.back().held_out;
  EXPECT_EQ(found.samples, 160);  // no slots among them
  EXPECT_GT(found.accuracy, 0.9);
}

TEST(Classification, CountsAnswersAmongTheFiveLikeliestWhereNoGradientIsAskedFor) {
  const torch::Tensor scores = torch::tensor({{0.6f, 0.5f, 0.4f, 0.3f, 0.2f, 0.1f, 0.0f}}).repeat({4, 1});
  const torch::Tensor targets = torch::tensor({std::int64_t{0}, std::int64_t{4}, std::int64_t{5}, kNoTarget});
  EXPECT_EQ(classification(scores, targets).top5_correct, 0);
  const torch::NoGradGuard guard;
  const Loss loss = classification(scores, targets);
  EXPECT_EQ(loss.correct, 1);
  EXPECT_EQ(loss.top5_correct, 2);
  EXPECT_EQ(loss.count, 3);
  const torch::Tensor all = torch::arange(7);
  EXPECT_EQ(classification(torch::ones({7, 7}), all).top5_correct, 5);  // five of seven that are alike
  EXPECT_EQ(classification(torch::full({7, 7}, std::nan("")), all).top5_correct, 0);
  EXPECT_EQ(classification(torch::ones({2, 2}), all.slice(0, 0, 2)).top5_correct, 2);
}

TEST(Trainer, MeasuresTop5OnRanksAndWithAServer) {
  const auto data = small_pictures(160);
  TrainerOptions options = short_run("dense");
  const Evaluation alone = trained(1, {.hidden = {32}}, data, options).epochs.back().held_out;
  EXPECT_GT(alone.top5_accuracy, alone.accuracy);
  EXPECT_LE(alone.top5_accuracy, 1);
  options.server = {.servers = 1, .deadline_seconds = 60};
  EXPECT_EQ(trained(2, {.hidden = {32}}, data, options).epochs.back().held_out.top5_accuracy, alone.top5_accuracy);
}

TEST(Classification, OfNothingIsNoLossAndNoGradient) {
  const torch::Tensor scores = torch::ones({2, 3}, torch::requires_grad());
  const Loss loss = classification(scores, torch::full({2}, kNoTarget, torch::kInt64));
  EXPECT_EQ(loss.mean.item<double>(), 0);
  loss.mean.backward();
  EXPECT_EQ(scores.grad().abs().sum().item<double>(), 0);
}

// One weight that the module has under two names.
struct Tied : torch::nn::Module {
  Tied() {
    weight = register_parameter("encoder", torch::full({1}, 0.5f));
    register_parameter("decoder", weight);
  }
  torch::Tensor forward(const torch::Tensor& inputs) const { return inputs.slice(1, 0, 1) * weight; }
  torch::Tensor weight;
};

TEST(Trainer, AParameterWithTwoNamesTakesOneStep) {
  run_threads(2, [](Communicator& communicator) {
    const auto module = std::make_shared<Tied>();
    const Batch one = {torch::ones({8, 1}), torch::zeros({8, 1})};  // the gradient is the weight
    const LossFunction loss = [module](const Batch& batch) {
      return regression(module->forward(batch.inputs), batch.targets);
    };
    TrainerOptions options{.rate = 0.5, .scale_rate = false, .batch = 4};
    Trainer(communicator, module, loss, tensor_data(one, one), options).train();
    EXPECT_EQ(module->weight.item<float>(), 0.25f);
  });
}

// Counts its passes in an integer, on which its outputs depend.
struct Counting : torch::nn::Module {
  Counting() {
    register_module("linear", linear);
    passes = register_buffer("passes", torch::zeros({1}, torch::kInt64));
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    if (is_training()) passes += 1;
    return linear(inputs) / passes;
  }
  torch::nn::Linear linear{6, 2};
  torch::Tensor passes;
};

TEST(Trainer, BuffersOfIntegersGoOnWithACheckpoint) {
  const TemporaryDirectory scratch;
  const auto run = [&](int epochs, bool resumes) {
    std::vector<double> losses;
    run_threads(2, [&](Communicator& communicator) {
      torch::manual_seed(1);
      const auto module = std::make_shared<Counting>();
      const LossFunction loss = [module](const Batch& batch) {
        return regression(module->forward(batch.inputs), batch.targets);
      };
      TrainerOptions options{.rate = 0.1, .batch = 8, .epochs = epochs};
      if (resumes) options.checkpoint = {.path = scratch.path("run"), .resume = true};
      const TrainResult result = Trainer(communicator, module, loss, whole_numbers(), options).train();
      if (communicator.rank() == 0) losses = trajectory(result);
      EXPECT_EQ(module->passes.item<std::int64_t>(), 4 * epochs);
    });
    return losses;
  };
  run(2, true);
  EXPECT_EQ(run(4, true), run(4, false));
}

struct Masked : torch::nn::Module {
  Masked() {
    register_module("linear", linear);
    mask = register_buffer("mask", torch::ones({1}).expand({1'000'000}));
  }
  torch::nn::Linear linear{6, 2};
  torch::Tensor mask;
};

// The module can be used once the buffer is what it should be: nothing of the refused trainer is left on it.
TEST(Trainer, BuffersThatAreNotContiguousAreNamed) {
  run_threads(1, [](Communicator& communicator) {
    const auto module = std::make_shared<Masked>();
    const LossFunction loss = [module](const Batch& batch) {
      return regression(module->linear(batch.inputs), batch.targets);
    };
    EXPECT_NE(
        error_of([&] { Trainer(communicator, module, loss, whole_numbers()); }).find("buffer mask is not contiguous"),
        std::string::npos);
    module->mask.set_data(module->mask.contiguous());
    EXPECT_TRUE(std::isfinite(Trainer(communicator, module, loss, whole_numbers()).train().epochs[0].loss));
  });
}

TEST(Trainer, ALossThatDoesNotCountIsTheMeanOfItsSamples) {
  run_threads(2, [](Communicator& communicator) {
    torch::nn::Linear linear(6, 2);
    const LossFunction loss = [linear](const Batch& batch) mutable {
      return Loss{.mean = (linear->forward(batch.inputs) - batch.targets).square().mean()};
    };
    TrainerOptions options{.rate = 0.05, .batch = 8, .epochs = 4, .patience = 2};
    const TrainResult result = Trainer(communicator, linear.ptr(), loss, whole_numbers(), options).train();
    EXPECT_EQ(result.epochs.size(), 4u);
    EXPECT_EQ(result.epochs.back().held_out.samples, 64);
    EXPECT_GT(result.epochs.back().held_out.loss, 0);
  });
}

TEST(Networks, DataThatDoesNotFitIsTold) {
  const auto data = small_pictures(40);
  EXPECT_NE(error_of([&] { require_fit({.model = "resnet20"}, *data); }).find("have 8x8"), std::string::npos);
  EXPECT_NE(error_of([&] { require_fit({.model = "lstm"}, *data); }).find("lstm takes words"), std::string::npos);
  EXPECT_NE(error_of([&] { require_fit({.model = "lenet"}, *data); }).find("mlp, cnn"), std::string::npos);
}

TEST(Trainer, ParametersThatAreNotF32AreNamed) {
  run_threads(1, [](Communicator& communicator) {
    torch::nn::Linear linear(2, 1);
    linear->to(torch::kFloat64);
    const LossFunction loss = [](const Batch&) { return Loss{}; };
    EXPECT_NE(error_of([&] { Trainer(communicator, linear.ptr(), loss, whole_numbers()); }).find("parameter weight"),
              std::string::npos);
  });
}

TEST(Trainer, WhatIsNullOnOneRankIsAnErrorOnAllAndNoCrash) {
  const char* const missing[] = {"the module is null", "the loss is empty", "the data are null"};
  for (int part = 0; part < 3; ++part) {
    run_threads(2, [&](Communicator& communicator) {
      torch::nn::Linear linear(6, 2);
      const bool lacks = communicator.rank() == 1;
      const LossFunction loss = [](const Batch&) { return Loss{}; };
      const std::string told = error_of([&] {
        Trainer(communicator, lacks && part == 0 ? nullptr : linear.ptr(), lacks && part == 1 ? nullptr : loss,
                lacks && part == 2 ? nullptr : whole_numbers());
      });
      EXPECT_EQ(told, std::string("rank 1: Trainer: ") + missing[part]);
    });
  }
}

TEST(Trainer, ThatWasMovedFromSaysSo) {
  run_threads(1, [](Communicator& communicator) {
    torch::nn::Linear linear(6, 2);
    Trainer trainer(
        communicator, linear.ptr(), [](const Batch&) { return Loss{}; }, whole_numbers());
    const Trainer moved(std::move(trainer));
    EXPECT_NE(error_of([&] { trainer.train(); }).find("was moved from"), std::string::npos);     // NOLINT
    EXPECT_NE(error_of([&] { trainer.evaluate(); }).find("was moved from"), std::string::npos);  // NOLINT
  });
}

TEST(Trainer, WhatTorchThrowsIsAnErrorOnAllRanks) {
  const std::string told = error_of([] {
    run_threads(2, [](Communicator& communicator) {
      torch::nn::Linear linear(5, 2);  // the data has 6
      const LossFunction loss = [linear](const Batch& batch) mutable {
        return regression(linear->forward(batch.inputs), batch.targets);
      };
      Trainer(communicator, linear.ptr(), loss, whole_numbers(), {.batch = 4}).train();
    });
  });
  EXPECT_NE(told.find("torch: "), std::string::npos) << told;
}

// Recipes learn what dense does. Short and small: the margins are wide, and chance is a tenth.
class FashionMnist : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
      GTEST_SKIP() << "/usr/share/datasets/fashion-mnist is not there";
    }
    data_ = std::make_shared<const DataSet>(open_data({.samples = 8000, .test_samples = 2000}));
  }
  double accuracy(const std::string& recipe) {
    TrainerOptions options = short_run(recipe);
    options.batch = 16;
    options.epochs = 5;
    options.rate = 0.005;
    return trained(4, {.hidden = {128}}, data_, options).epochs.back().held_out.accuracy;
  }
  std::shared_ptr<const DataSet> data_;
};

TEST_F(FashionMnist, RecipesComeNearDense) {
  const double dense = accuracy("dense");
  EXPECT_GT(dense, 0.8);
  for (const char* const recipe : {"topk:16/512|qsgd:4", "redsync:1%", "spardl:1%", "three_lc", "sparseloco:every=5"}) {
    EXPECT_GT(accuracy(recipe), dense - 0.05) << recipe;
  }
}

}  // namespace
}  // namespace tulle::nn
