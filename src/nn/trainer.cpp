// A module of torch as a Learner: its parameters as arrays, its gradients by hooks.
#include "tulle/nn/trainer.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "nn/training.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::nn {
namespace {

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorKind::bad_input, reason); }

// Ranks share the cores: each computes with one thread. OpenMP's setting belongs to the calling thread, OpenBLAS's to
// the process; it is asked for by name, because another BLAS may be in its place.
void compute_alone() {
  thread_local bool is_set = false;  // setting it again would empty caches of kernels
  if (std::exchange(is_set, true)) return;
  at::set_num_threads(1);
  static std::once_flag once;
  std::call_once(once, [] {
    using SetThreads = void (*)(int);
    if (const auto set = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set(1);
  });
}

// The dice of this thread's rank, set anew in every step.
at::Generator& step_generator() {
  thread_local at::Generator generator = at::detail::createCPUGenerator();
  return generator;
}

void seed_step(std::uint64_t seed) {
  at::Generator& generator = step_generator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

// What `work` gives; what torch throws becomes an Error.
template <class Work>
auto translated(Work work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::bad_input, fmt::format("torch: {}", error.what_without_backtrace()));
  }
}

Verdict verdict_of(const Loss& loss, std::size_t samples) {
  return {.loss = loss.mean.item<double>(),
          .correct = loss.correct,
          .count = loss.count.value_or(static_cast<double>(samples)),
          .top5_correct = loss.top5_correct};
}

// Scores that are no numbers have no likeliest ones.
double top5_correct(const torch::Tensor& rows, const torch::Tensor& wanted) {
  const torch::Tensor likeliest = std::get<1>(rows.topk(std::min<std::int64_t>(5, rows.size(1)), 1));
  const torch::Tensor is_among = likeliest.eq(wanted.unsqueeze(1)).any(1);
  return is_among.logical_and(rows.isnan().any(1).logical_not()).sum().item<double>();
}

// The last matrix is the output layer; vectors are biases and norms.
std::vector<gradient::Role> roles_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<gradient::Role> roles;
  for (const torch::Tensor& tensor : tensors) {
    roles.push_back(tensor.dim() > 1 ? gradient::Role::hidden : gradient::Role::bias_or_norm);
  }
  const auto last = std::find(roles.rbegin(), roles.rend(), gradient::Role::hidden);
  if (last != roles.rend()) *last = gradient::Role::output;
  return roles;
}

// Tells a learner which tensors an operator of torch is about to read, on this thread and while it lives. By storage: a
// view of a parameter is the parameter. What a module of the user's reads past torch's operators is not seen.
class InputWatch {
 public:
  using Told = std::function<void(const at::Tensor&)>;

  explicit InputWatch(Told told) : told_(std::move(told)), outer_(std::exchange(current(), this)) {
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&InputWatch::look).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~InputWatch() {
    at::removeCallback(handle_);
    current() = outer_;
  }
  InputWatch(const InputWatch&) = delete;
  InputWatch& operator=(const InputWatch&) = delete;

 private:
  static InputWatch*& current() {
    thread_local InputWatch* watch = nullptr;
    return watch;
  }
  static std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function) {
    for (const c10::IValue& input : function.inputs()) {
      if (input.isTensor()) current()->tell(input.toTensor());
      if (!input.isTensorList()) continue;
      for (const at::Tensor& tensor : input.toTensorVector()) current()->tell(tensor);
    }
    return nullptr;
  }
  void tell(const at::Tensor& tensor) const {
    if (tensor.defined() && tensor.has_storage()) told_(tensor);
  }

  Told told_;
  InputWatch* outer_;
  at::CallbackHandle handle_ = 0;
};

class ModuleLearner final : public Learner {
 public:
  ModuleLearner(std::shared_ptr<torch::nn::Module> module, LossFunction loss, std::shared_ptr<const Data> data)
      : module_(std::move(module)), loss_(std::move(loss)), data_(std::move(data)) {
    for (const auto& item : module_->named_parameters()) add_parameter(item.key(), item.value());
    if (tensors_.empty()) refuse("the module has no parameters that require a gradient");
    for (const auto& item : module_->named_buffers()) add_buffer(item.key(), item.value());
    add_hooks();  // last, because who is not constructed takes none away
  }
  ~ModuleLearner() override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].remove_hook(hooks_[i]);
  }
  ModuleLearner(const ModuleLearner&) = delete;
  ModuleLearner& operator=(const ModuleLearner&) = delete;

  std::uint64_t train_samples() const override { return data_->train_samples(); }
  std::uint64_t test_samples() const override { return data_->test_samples(); }

  std::vector<gradient::Parameter> parameters() const override {
    const std::vector<gradient::Role> roles = roles_of(tensors_);
    std::vector<gradient::Parameter> parameters;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const bool is_matrix = tensors_[i].dim() > 1;
      parameters.push_back({.name = names_[i],
                            .size = static_cast<std::uint64_t>(tensors_[i].numel()),
                            .role = roles[i],
                            .rows = is_matrix ? static_cast<std::uint64_t>(tensors_[i].size(0)) : 0});
    }
    return parameters;
  }

  std::span<float> weights(std::size_t parameter) override {
    return {tensors_[parameter].data_ptr<float>(), static_cast<std::size_t>(tensors_[parameter].numel())};
  }

  std::vector<std::span<float>> buffers() override {
    std::vector<std::span<float>> spans;
    for (const torch::Tensor& buffer : buffers_) {
      spans.emplace_back(buffer.data_ptr<float>(), static_cast<std::size_t>(buffer.numel()));
    }
    return spans;
  }

  std::vector<std::span<std::byte>> other_buffers() override {
    std::vector<std::span<std::byte>> spans;
    for (const torch::Tensor& buffer : other_buffers_) {
      spans.emplace_back(static_cast<std::byte*>(buffer.data_ptr()), buffer.nbytes());
    }
    return spans;
  }

  double predictions_of(std::span<const std::uint32_t> samples) const override {
    return translated([&] { return data_->train_predictions(samples); });
  }

  void prepare(std::span<const std::uint32_t> samples, std::uint64_t epoch, double weight) override {
    weight_ = weight;
    samples_ = samples.size();
    translated([&] { batch_ = data_->train_batch(samples, epoch); });
  }

  Verdict run(std::uint64_t seed, const Needed& needed, const Ready& ready) override {
    return translated([&] {
      compute_alone();
      seed_step(seed);
      module_->train();
      for (torch::Tensor& tensor : tensors_) tensor.mutable_grad().reset();  // so that no gradient is added to another
      const auto began = std::chrono::steady_clock::now();
      const Loss loss = forward(needed);
      const std::chrono::duration<double> forward_time = std::chrono::steady_clock::now() - began;
      const Verdict said = verdict_of(loss, samples_);
      predictions_ = said.count;
      ready_ = ready ? &ready : nullptr;
      (weight_ == 1 ? loss.mean : loss.mean * weight_).backward();
      ready_ = nullptr;
      Verdict verdict = said;
      verdict.forward_seconds = forward_time.count();
      return verdict;
    });
  }

  double predictions() const override { return predictions_; }

  std::span<const float> gradient(std::size_t parameter) override {
    torch::Tensor& gradient = tensors_[parameter].mutable_grad();
    if (!gradient.defined()) return {};
    gradient = gradient.contiguous();
    return {gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())};
  }

  Verdict evaluate(std::span<const std::uint32_t> samples) override {
    return translated([&] {
      compute_alone();
      const torch::NoGradGuard guard;
      module_->eval();
      return verdict_of(loss_(data_->test_batch(samples)), samples.size());
    });
  }

 private:
  // A module may have one parameter under several names; it goes by the first.
  void add_parameter(const std::string& name, torch::Tensor tensor) {
    if (!tensor.requires_grad()) return;
    const auto is_same = [&](const torch::Tensor& other) { return other.is_same(tensor); };
    if (std::ranges::any_of(tensors_, is_same)) return;
    if (tensor.scalar_type() != torch::kFloat32 || !tensor.is_contiguous() || !tensor.device().is_cpu()) {
      refuse(fmt::format("parameter {} is not contiguous f32 on the CPU", name));
    }
    names_.push_back(name);
    places_.emplace(tensor.storage().unsafeGetStorageImpl(), tensors_.size());
    tensors_.push_back(std::move(tensor));
  }

  // A hook of a leaf is called once a back-propagation, with the sum of all that the parameter was used for.
  void add_hooks() {
    for (std::size_t place = 0; place < tensors_.size(); ++place) {
      hooks_.push_back(
          tensors_[place].register_hook([this, place](const torch::Tensor& gradient) { hand_over(place, gradient); }));
    }
  }

  void add_buffer(const std::string& name, const torch::Tensor& buffer) {
    if (!buffer.defined()) return;
    if (!buffer.is_contiguous() || !buffer.device().is_cpu()) {
      refuse(fmt::format("buffer {} is not contiguous on the CPU; register its contiguous()", name));
    }
    std::vector<torch::Tensor>& others = buffer.scalar_type() == torch::kFloat32 ? buffers_ : other_buffers_;
    others.push_back(buffer);
  }

  Loss forward(const Needed& needed) {
    if (!needed) return loss_(batch_);
    const auto tell = [&](const at::Tensor& tensor) {
      const auto [first, last] = places_.equal_range(tensor.storage().unsafeGetStorageImpl());
      for (auto item = first; item != last; ++item) needed(item->second);
    };
    const Loss loss = [&] {
      const InputWatch watch(tell);
      return loss_(batch_);
    }();
    for (std::size_t place = 0; place < tensors_.size(); ++place) needed(place);
    return loss;
  }

  void hand_over(std::size_t place, const torch::Tensor& gradient) const {
    if (ready_ == nullptr) return;
    const torch::Tensor values = gradient.contiguous();
    (*ready_)(place, {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  }

  std::shared_ptr<torch::nn::Module> module_;
  LossFunction loss_;
  std::shared_ptr<const Data> data_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> tensors_, buffers_, other_buffers_;
  std::multimap<const c10::StorageImpl*, std::size_t> places_;  // parameters may share a storage
  std::vector<unsigned> hooks_;
  Batch batch_;
  std::size_t samples_ = 0;
  double weight_ = 1, predictions_ = 0;
  const Ready* ready_ = nullptr;  // while back-propagation runs
};

class TensorData final : public Data {
 public:
  TensorData(Batch train, Batch test) : train_(std::move(train)), test_(std::move(test)) {}
  std::uint64_t train_samples() const override { return static_cast<std::uint64_t>(train_.inputs.size(0)); }
  std::uint64_t test_samples() const override { return static_cast<std::uint64_t>(test_.inputs.size(0)); }
  Batch train_batch(std::span<const std::uint32_t> samples, std::uint64_t) const override {
    return taken(train_, samples);
  }
  Batch test_batch(std::span<const std::uint32_t> samples) const override { return taken(test_, samples); }

 private:
  static Batch taken(const Batch& all, std::span<const std::uint32_t> samples) {
    const std::vector<std::int64_t> rows(samples.begin(), samples.end());
    const torch::Tensor index = torch::tensor(rows, torch::kInt64);
    return {all.inputs.index_select(0, index), all.targets.index_select(0, index)};
  }

  Batch train_, test_;
};

}  // namespace

std::shared_ptr<const Data> tensor_data(Batch train, Batch test) {
  for (const Batch* const batch : {&train, &test}) {
    if (batch->inputs.dim() > 0 && batch->targets.dim() > 0 && batch->inputs.size(0) == batch->targets.size(0))
      continue;
    refuse("inputs and targets differ in their first dimension, which counts the samples");
  }
  return std::make_shared<TensorData>(std::move(train), std::move(test));
}

Loss classification(const torch::Tensor& scores, const torch::Tensor& targets) {
  const torch::Tensor rows = scores.reshape({-1, scores.size(-1)}), wanted = targets.reshape({-1});
  const auto count = wanted.ne(kNoTarget).sum().item<double>();
  torch::nn::functional::CrossEntropyFuncOptions options;
  if (count == 0) options.reduction(torch::kSum);  // the mean of nothing is no number
  return {.mean = torch::nn::functional::cross_entropy(rows, wanted, options),
          .correct = rows.argmax(1).eq(wanted).sum().item<double>(),
          .count = count,
          .top5_correct = torch::GradMode::is_enabled() ? 0 : top5_correct(rows, wanted)};
}

Loss regression(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return {.mean = (outputs - targets).square().mean() / 2, .count = static_cast<double>(targets.size(0))};
}

torch::Tensor seeded_dropout(const torch::Tensor& values, double share, bool is_training) {
  if (!is_training || share == 0) return values;
  const torch::Tensor kept = torch::empty_like(values.detach()).bernoulli_(1 - share, step_generator());
  return values * kept / (1 - share);
}

struct Trainer::State {
  State(const Communicator& communicator, std::shared_ptr<torch::nn::Module> module, LossFunction loss,
        std::shared_ptr<const Data> data, const TrainerOptions& options) {
    std::exception_ptr failure;
    try {
      if (!module) refuse("Trainer: the module is null");
      if (!loss) refuse("Trainer: the loss is empty");
      if (!data) refuse("Trainer: the data are null");
      learner.emplace(std::move(module), std::move(loss), std::move(data));
    } catch (const Error& error) {
      failure = std::make_exception_ptr(error.at_rank(communicator.rank()));
    } catch (...) {
      failure = std::current_exception();
    }
    Communicator ranks = communicator;
    const bool is_newcomer = options.server.place.has_value();  // others are in the middle of their training
    if (is_newcomer && failure) std::rethrow_exception(failure);
    if (!is_newcomer) fail_together(ranks, failure);  // the others would wait for this rank
    training = make_training(communicator, *learner, options);
  }

  std::optional<ModuleLearner> learner;
  std::unique_ptr<Training> training;
};

Trainer::Trainer(Communicator communicator, std::shared_ptr<torch::nn::Module> module, LossFunction loss,
                 std::shared_ptr<const Data> data, const TrainerOptions& options) {
  compute_alone();
  state_ = std::make_unique<State>(communicator, std::move(module), std::move(loss), std::move(data), options);
}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

namespace {

template <class State>
Training& training_of(const std::unique_ptr<State>& state) {
  if (!state) refuse("this Trainer was moved from: use the one that it was moved to");
  return *state->training;
}

}  // namespace

TrainResult Trainer::train() { return training_of(state_).train(); }
Evaluation Trainer::evaluate() { return training_of(state_).evaluate(); }

}  // namespace tulle::nn
