// How it works. Everything happens in one operation of the communicator's, in phases between barriers:
//
// 1. *Messages.* Inside nodes, between one rank of each node, and between all ranks of nodes: a *ladder* of sizes, each
//    4 times the one before, climbed once in every round. One pair alone plays ping-pong; then all ranks send at once,
//    in rings, and two and two to each other. A time is that of several messages in a row, so that the
//    scheduler's doings count by their share. Each climb of a pair gives one fit of α and β.
// 2. *Kernels.* All ranks run the same kernel for the same time.
// 3. Rank 0 gets all *samples*, takes quartiles over rounds and ranks, and tells everyone.

#include "tulle/tune/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tune/message_probe.hpp"
#include "tune/peers.hpp"
#include "tune/probe_kernels.hpp"
#include "tune/samples.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kInCacheBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMostKernelBytes = std::uint64_t{256} << 20;  // indices of 32 bits
constexpr const char *kAlpha = "alpha_seconds", *kBeta = "beta_seconds_per_byte";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const Buffer& only_segment_of(const Incoming& message) {
  if (message.segments.size() == 1) return message.segments.front();
  throw Error(ErrorKind::bad_message,
              fmt::format("rank {} sent samples of a probe in {} segments", message.from, message.segments.size()))
      .with_peer(message.from);
}

class Prober {
 public:
  Prober(Operation& operation, const Profile& profile, std::vector<int> nodes, int node_count, ProbeOptions options)
      : lockstep_(operation),
        profile_(profile),
        nodes_(std::move(nodes)),
        node_count_(node_count),
        options_(std::move(options)),
        phases_(message_phases(nodes_)),
        kernels_(options_.kernels ? probe_kernels() : std::vector<ProbeKernel>()) {}

  Task<MeasuredProfile> run() {
    for (const MessagePhase& phase : phases_) co_await probe_messages(phase);
    for (const ProbeKernel& kernel : kernels_) {
      co_await probe_kernel(kernel, options_.kernel_bytes, "");
      co_await probe_kernel(kernel, kInCacheBytes, "in_cache_");
    }
    const Summary summary = co_await summarize();
    co_return measured_from(with_exchange_factor(with_one_network(summary)));
  }

 private:
  void advance(std::string_view what) {
    const std::uint64_t total = static_cast<unsigned>(options_.rounds) * (phases_.size() + 2 * kernels_.size());
    if (options_.on_progress) options_.on_progress(done_, total, what);
    done_ += 1;
  }

  Task<> probe_messages(const MessagePhase& phase) {
    MessageProbe probe(lockstep_, options_.largest_bytes);
    std::vector<double>& alphas = samples_.of(phase.prefix + kAlpha);
    std::vector<double>& betas = samples_.of(phase.prefix + kBeta);
    for (int round = 0; round < options_.rounds; ++round) {
      advance("messages");
      const std::optional<LineFit> line = co_await probe.climb(phase);
      if (!line) continue;
      alphas.push_back(line->alpha_seconds);
      betas.push_back(line->beta_seconds_per_byte);
    }
  }

  Task<> probe_kernel(const ProbeKernel& kernel, std::uint64_t bytes, std::string_view prefix) {
    const KernelRun run = kernel.prepare(bytes, lockstep_.size());
    std::vector<double>& samples = samples_.of(fmt::format("{}{}", prefix, kernel.constant));
    for (int round = 0; round < options_.rounds; ++round) {
      advance(kernel.constant);
      co_await lockstep_.barrier();
      samples.push_back(seconds_per_item(run, options_.kernel_seconds, steady_seconds));
    }
  }

  void send(int to, Step step, const Buffer& packed) {
    Segments segments;
    segments.push_back(packed);
    lockstep_.operation().send(to, step, std::move(segments), 0);
  }

  Task<Summary> summarize() {
    const Step up = lockstep_.take_steps(2);
    const auto down = static_cast<Step>(up + 1);
    if (lockstep_.rank() != 0) {
      send(0, up, samples_.pack());
      const Incoming told = co_await lockstep_.operation().receive(0, down);
      co_return samples_.unpack(only_segment_of(told), 0);
    }
    for (int peer = 1; peer < lockstep_.size(); ++peer) {
      const Incoming incoming = co_await lockstep_.operation().receive(peer, up);
      samples_.add(only_segment_of(incoming), peer);
    }
    const Summary summary = samples_.summary();
    const Buffer packed = Samples::pack(summary);
    for (int peer = 1; peer < lockstep_.size(); ++peer) send(peer, down, packed);
    co_return summary;
  }

  // On one node there is no other network: its constants are those inside the node.
  Summary with_one_network(Summary summary) const {
    if (node_count_ > 1) return summary;
    for (const std::string& prefix : {std::string(), std::string("exchange_")}) {
      for (const std::string& name : {prefix + kAlpha, prefix + kBeta}) {
        if (const auto inside = summary.find("node_" + name); inside != summary.end()) summary[name] = inside->second;
      }
    }
    return summary;
  }

  // Where nobody could tell, bytes take as long in an exchange as in a ring.
  static Summary with_exchange_factor(Summary summary) {
    const auto ring = summary.find(kBeta), exchange = summary.find(std::string("exchange_") + kBeta);
    if (ring == summary.end()) return summary;
    const double beta = ring->second.median;
    const auto factor = [&](double seconds) { return beta > 0 ? std::max(1.0, seconds / beta) : 1; };
    const Quartiles both = exchange == summary.end() ? Quartiles{beta, beta, beta} : exchange->second;
    summary["exchange_factor"] = {factor(both.q1), factor(both.median), factor(both.q3)};
    return summary;
  }

  MeasuredProfile measured_from(Summary summary) const {
    MeasuredProfile measured{.profile = profile_, .first_quartile = profile_, .third_quartile = profile_};
    measured.ranks = lockstep_.size();
    measured.nodes = node_count_;
    for (const ProfileConstant& constant : profile_constants()) {
      const auto found = summary.extract(std::string(constant.name));
      if (found.empty()) continue;
      measured.first_quartile.*constant.field = found.mapped().q1;
      measured.profile.*constant.field = found.mapped().median;
      measured.third_quartile.*constant.field = found.mapped().q3;
    }
    measured.also = std::move(summary);
    return measured;
  }

  Lockstep lockstep_;
  Profile profile_;
  std::vector<int> nodes_;
  int node_count_;
  ProbeOptions options_;
  std::vector<MessagePhase> phases_;
  std::vector<ProbeKernel> kernels_;
  std::uint64_t done_ = 0;
  Samples samples_;
};

void require_sound(const ProbeOptions& options) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::bad_input, "ProbeOptions: " + why); };
  constexpr std::uint64_t kTwoSizes = 4 * kSmallestMessageBytes;
  if (options.rounds < 1 || options.rounds > 50) refuse("rounds must be 1 to 50");
  if (options.largest_bytes < kTwoSizes) refuse(fmt::format("largest_bytes must be {} or more", kTwoSizes));
  if (!(options.kernel_seconds > 0)) refuse("kernel_seconds must be above 0");
  if (options.kernel_bytes < kInCacheBytes || options.kernel_bytes > kMostKernelBytes) {
    refuse(fmt::format("kernel_bytes must be {} to {}", kInCacheBytes, kMostKernelBytes));
  }
}

Task<> run_probe(Operation& operation, std::string transport, ProbeOptions options,
                 std::shared_ptr<std::optional<MeasuredProfile>> result) {
  const auto nodes = operation.nodes();
  Prober prober(operation, operation.profile(), {nodes.begin(), nodes.end()}, operation.node_count(),
                std::move(options));
  *result = co_await prober.run();
  (*result)->transport = std::move(transport);
}

}  // namespace

Request<MeasuredProfile> iprobe(Communicator& communicator, const ProbeOptions& options) {
  require_sound(options);
  OperationSettings settings;
  settings.signature.kind = OperationKind::probe;
  settings.signature.dimension = options.largest_bytes;
  settings.signature.options_hash = static_cast<std::uint32_t>(options.rounds) * 2 + (options.kernels ? 1 : 0);
  const auto result = std::make_shared<std::optional<MeasuredProfile>>();
  auto operation = communicator.start(settings, [&](Operation& started) {
    return run_probe(started, communicator.engine()->transport().name(), options, result);
  });
  return {communicator.engine(), std::move(operation), result};
}

MeasuredProfile probe(Communicator& communicator, const ProbeOptions& options) {
  return iprobe(communicator, options).wait();
}

}  // namespace tulle
