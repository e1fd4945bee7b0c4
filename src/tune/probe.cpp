// How it works. Everything happens in one operation of the communicator's, in phases between barriers:
//
// 1. *Messages.* Between pairs inside a node, between one rank of each node, and between all ranks of nodes: a
//    *ladder* of sizes, each 4 times the one before, again in every round. One pair alone plays ping-pong; all pairs at
//    once exchange, both ways at a time, as collectives do. A time is that of several messages in a row, so that the
//    scheduler's doings count by their share. Each round of a pair gives one fit of α and β.
// 2. *Kernels.* All ranks run the same kernel for the same time.
// 3. Rank 0 gets all *samples*, takes quartiles over rounds and ranks, and tells everyone.

#include "tulle/tune/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "collectives/patterns/bruck.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/tune/line_fit.hpp"
#include "tune/pairs.hpp"
#include "tune/probe_kernels.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kSmallestBytes = 64;
constexpr std::uint64_t kInCacheBytes = std::uint64_t{64} << 10;

// Many small messages, so that the clock's grain does not show; two large ones.
int messages_in_a_row(std::uint64_t bytes) {
  return static_cast<int>(std::clamp<std::uint64_t>((std::uint64_t{256} << 10) / bytes, 2, 32));
}

std::vector<std::uint64_t> ladder(std::uint64_t largest) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = kSmallestBytes; bytes <= largest; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Messages between some pairs of ranks.
struct Phase {
  std::string prefix;                     // of the constants' names that it measures
  std::vector<std::optional<int>> pairs;  // the partner of every rank
  bool is_alone = false;                  // one pair, while the others look on
};

std::vector<Phase> phases_of(std::span<const int> nodes) {
  const auto inside = pair_ranks(nodes, PairScope::inside_node);
  const auto leaders = pair_ranks(nodes, PairScope::leaders_of_nodes);
  const auto between = pair_ranks(nodes, PairScope::between_nodes);
  std::vector<Phase> phases = {{"alone_node_", first_pair(inside), true},
                               {"node_", inside},
                               {"alone_", first_pair(leaders), true},
                               {"", leaders}};
  if (between != leaders) phases.push_back({"crowded_", between});
  std::erase_if(phases, [](const Phase& phase) {
    return std::ranges::none_of(phase.pairs, [](const auto& partner) { return partner.has_value(); });
  });
  return phases;
}

constexpr const char *kAlpha = "alpha_seconds", *kBeta = "beta_seconds_per_byte";

using Samples = std::map<std::string, std::vector<double>>;
using Summary = std::map<std::string, Quartiles>;

class Prober {
 public:
  Prober(Operation& operation, Profile profile, std::vector<int> nodes, ProbeOptions options)
      : operation_(operation),
        profile_(profile),
        nodes_(std::move(nodes)),
        options_(std::move(options)),
        phases_(phases_of(nodes_)),
        sizes_(ladder(options_.largest_bytes)),
        kernels_(options_.kernels ? probe_kernels() : std::vector<ProbeKernel>()) {}

  Task<MeasuredProfile> run() {
    for (const Phase& phase : phases_) co_await probe_messages(phase);
    for (const ProbeKernel& kernel : kernels_) {
      co_await probe_kernel(kernel, options_.kernel_bytes, "");
      co_await probe_kernel(kernel, kInCacheBytes, "in_cache_");
    }
    const Summary summary = co_await summarize();
    co_return measured_from(summary);
  }

 private:
  // ---------------------------------------------------------------- progress

  void advance(std::string_view what) {
    const std::uint64_t total = static_cast<unsigned>(options_.rounds) * (phases_.size() + 2 * kernels_.size());
    if (options_.on_progress) options_.on_progress(done_, total, what);
    done_ += 1;
  }

  // ---------------------------------------------------------------- messages

  // Steps are taken by all ranks alike, also where a rank sends nothing in them.
  Step take_steps(int count) {
    const Step first = next_step_;
    next_step_ = static_cast<Step>(next_step_ + count);
    return first;
  }

  // A frame's head and one array, as rows send.
  void send(int to, Step step, const Buffer& head, const Buffer& array) {
    Segments segments;
    segments.push_back(head);
    segments.push_back(array);
    operation_.send(to, step, std::move(segments), array.size());
  }

  Task<> barrier() {
    const int size = operation_.size(), rank = operation_.rank();
    Step step = take_steps(patterns::bruck_rounds(size));
    for (int distance = 1; distance < size; distance *= 2, ++step) {
      operation_.send((rank + distance) % size, step, {}, 0);
      co_await operation_.receive((rank + size - distance) % size, step);
    }
  }

  // The first message is not timed: until it is there the partner may still be on its way out of the barrier.
  Task<double> exchange_seconds(int partner, std::uint64_t bytes, Step first, int count) {
    const Buffer head = Buffer::allocate(kFrameHeadBytes), array = filled(bytes);
    double started = 0;
    for (int i = 0; i <= count; ++i) {
      if (i == 1) started = operation_.seconds();
      const auto step = static_cast<Step>(first + i);
      send(partner, step, head, array);
      co_await operation_.receive(partner, step);
    }
    co_return (operation_.seconds() - started) / count;
  }

  // As the lower rank sees it, which begins and ends a round trip.
  Task<double> ping_pong_seconds(int partner, std::uint64_t bytes, Step first, int count) {
    const Buffer head = Buffer::allocate(kFrameHeadBytes), array = filled(bytes);
    double started = 0;
    for (int i = 0; i <= count; ++i) {
      if (i == 1) started = operation_.seconds();
      const auto step = static_cast<Step>(first + i);
      if (operation_.rank() < partner) send(partner, step, head, array);
      co_await operation_.receive(partner, step);
      if (operation_.rank() > partner) send(partner, step, head, array);
    }
    co_return (operation_.seconds() - started) / (2 * count);
  }

  static Buffer filled(std::uint64_t bytes) {
    Buffer array = Buffer::allocate(bytes);
    std::fill_n(array.mutable_data(), bytes, std::byte{1});
    return array;
  }

  Task<double> transfer_seconds(const Phase& phase, int partner, std::uint64_t bytes, Step first, int count) {
    if (phase.is_alone) co_return co_await ping_pong_seconds(partner, bytes, first, count);
    co_return co_await exchange_seconds(partner, bytes, first, count);
  }

  Task<> probe_messages(const Phase& phase) {
    const std::optional<int> partner = phase.pairs[static_cast<std::size_t>(operation_.rank())];
    std::vector<double>& alphas = samples_[phase.prefix + kAlpha];
    std::vector<double>& betas = samples_[phase.prefix + kBeta];
    for (int round = 0; round < options_.rounds; ++round) {
      advance("messages");
      std::vector<TransferTime> times;
      for (const std::uint64_t bytes : sizes_) {
        co_await barrier();
        const int count = messages_in_a_row(bytes);
        const Step first = take_steps(count + 1);
        if (!partner) continue;
        const double seconds = co_await transfer_seconds(phase, *partner, bytes, first, count);
        times.push_back({static_cast<double>(bytes), seconds});
      }
      if (!partner || (phase.is_alone && operation_.rank() > *partner)) continue;
      const LineFit line = fit_line(times);
      alphas.push_back(line.alpha_seconds);
      betas.push_back(line.beta_seconds_per_byte);
    }
  }

  // ---------------------------------------------------------------- kernels

  Task<> probe_kernel(const ProbeKernel& kernel, std::uint64_t bytes, std::string_view prefix) {
    const KernelRun run = kernel.prepare(bytes, operation_.size());
    std::vector<double>& samples = samples_[fmt::format("{}{}", prefix, kernel.constant)];
    for (int round = 0; round < options_.rounds; ++round) {
      advance(kernel.constant);
      co_await barrier();
      samples.push_back(seconds_per_item(run, options_.kernel_seconds, steady_seconds));
    }
  }

  // ---------------------------------------------------------------- what everyone gets

  // The names are the same on all ranks, so that counts and numbers say everything.
  Buffer pack_samples() const {
    std::vector<double> numbers;
    for (const auto& [name, samples] : samples_) {
      numbers.push_back(static_cast<double>(samples.size()));
      numbers.insert(numbers.end(), samples.begin(), samples.end());
    }
    return Buffer::copy_of(std::as_bytes(std::span(numbers)));
  }

  void add_samples(const Buffer& packed) {
    std::span<const double> numbers = packed.as<double>();
    for (auto& [name, samples] : samples_) {
      const auto count = static_cast<std::size_t>(numbers[0]);
      samples.insert(samples.end(), numbers.begin() + 1, numbers.begin() + 1 + static_cast<std::ptrdiff_t>(count));
      numbers = numbers.subspan(1 + count);
    }
  }

  Summary summary_of_samples() const {
    Summary summary;
    for (const auto& [name, samples] : samples_) summary[name] = quartiles(samples);
    return summary;
  }

  Summary unpack_summary(const Buffer& packed) const {
    Summary summary;
    std::span<const Quartiles> spreads = packed.as<Quartiles>();
    for (const auto& [name, samples] : samples_) {
      summary[name] = spreads.front();
      spreads = spreads.subspan(1);
    }
    return summary;
  }

  Task<Summary> summarize() {
    const Step up = take_steps(2);
    const auto down = static_cast<Step>(up + 1);
    if (operation_.rank() != 0) {
      Segments segments;
      segments.push_back(pack_samples());
      operation_.send(0, up, std::move(segments), 0);
      const Incoming told = co_await operation_.receive(0, down);
      co_return unpack_summary(told.segments.at(0));
    }
    for (int peer = 1; peer < operation_.size(); ++peer) {
      const Incoming incoming = co_await operation_.receive(peer, up);
      add_samples(incoming.segments.at(0));
    }
    const Summary summary = summary_of_samples();
    tell(summary, down);
    co_return summary;
  }

  void tell(const Summary& summary, Step step) {
    std::vector<Quartiles> spreads;
    for (const auto& [name, spread] : summary) spreads.push_back(spread);
    const Buffer packed = Buffer::copy_of(std::as_bytes(std::span(spreads)));
    for (int peer = 1; peer < operation_.size(); ++peer) {
      Segments segments;
      segments.push_back(packed);
      operation_.send(peer, step, std::move(segments), 0);
    }
  }

  // On one node there is no other network: its constants are those inside the node.
  Summary with_one_network(Summary summary) const {
    if (count_nodes(nodes_) > 1) return summary;
    for (const std::string name : {kAlpha, kBeta}) {
      if (const auto inside = summary.find("node_" + name); inside != summary.end()) summary[name] = inside->second;
    }
    return summary;
  }

  MeasuredProfile measured_from(const Summary& measured) const {
    MeasuredProfile file{.profile = profile_, .first_quartile = profile_, .third_quartile = profile_};
    file.ranks = operation_.size();
    file.nodes = count_nodes(nodes_);
    file.also = with_one_network(measured);
    for (const ProfileConstant& constant : profile_constants()) {
      const auto found = file.also.extract(std::string(constant.name));
      if (found.empty()) continue;
      file.first_quartile.*constant.field = found.mapped().q1;
      file.profile.*constant.field = found.mapped().median;
      file.third_quartile.*constant.field = found.mapped().q3;
    }
    return file;
  }

  Operation& operation_;
  Profile profile_;
  std::vector<int> nodes_;
  ProbeOptions options_;
  std::vector<Phase> phases_;
  std::vector<std::uint64_t> sizes_;
  std::vector<ProbeKernel> kernels_;
  Step next_step_ = 0;
  std::uint64_t done_ = 0;
  Samples samples_;
};

void require_sound(const ProbeOptions& options) {
  const auto refuse = [](std::string_view why) {
    throw Error(ErrorKind::bad_input, fmt::format("ProbeOptions: {}", why));
  };
  if (options.rounds < 1 || options.rounds > 50) refuse("rounds must be 1 to 50");
  if (options.largest_bytes < 4 * kSmallestBytes)
    refuse(fmt::format("largest_bytes must be {} or more", 4 * kSmallestBytes));
  if (!(options.kernel_seconds > 0)) refuse("kernel_seconds must be above 0");
  if (options.kernel_bytes < kInCacheBytes) refuse(fmt::format("kernel_bytes must be {} or more", kInCacheBytes));
}

Task<> run_probe(Operation& operation, Communicator communicator, ProbeOptions options,
                 std::shared_ptr<std::optional<MeasuredProfile>> result) {
  const auto nodes = communicator.nodes();
  Prober prober(operation, communicator.profile(), {nodes.begin(), nodes.end()}, std::move(options));
  *result = co_await prober.run();
  (*result)->transport = communicator.engine()->transport().name();
}

}  // namespace

Request<MeasuredProfile> iprobe(Communicator& communicator, const ProbeOptions& options) {
  require_sound(options);
  CallSignature signature;
  signature.kind = OperationKind::probe;
  signature.dimension = options.largest_bytes;
  signature.options_hash = static_cast<std::uint32_t>(options.rounds) * 2 + (options.kernels ? 1 : 0);
  const auto result = std::make_shared<std::optional<MeasuredProfile>>();
  auto operation = communicator.engine()->start(communicator.context(), signature, 0, false, [&](Operation& started) {
    return run_probe(started, communicator, options, result);
  });
  return {communicator.engine(), std::move(operation), result};
}

MeasuredProfile probe(Communicator& communicator, const ProbeOptions& options) {
  return iprobe(communicator, options).wait();
}

}  // namespace tulle
