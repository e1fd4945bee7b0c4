// What workers of a parameter server tell rank 0 about their trainings: datagrams on a port beside the server's.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "nn/training.hpp"
#include "tulle/base/buffer.hpp"

namespace tulle::nn {

/// The port of reports; the server's letters have number 0.
inline constexpr std::uint32_t kReportPort = 1;
/// Where rank 0 tells all others its run's number, and then that of the run that it goes on from.
inline constexpr std::uint32_t kRunPort = 2;

/// What a training has cost a worker since the beginning of the run.
struct WorkerCosts {
  double seconds = 0, exposed_seconds = 0, start_seconds = 0;
  double bytes_sent = 0, bytes_received = 0, pushed = 0, pulled = 0, dropped = 0;

  void add(const WorkerCosts& others);
};

/// Of one worker at the end of an epoch.
struct WorkerReport {
  double epoch = 0;    ///< that is over, from 1; 0: none
  double is_last = 0;  ///< 1: the worker leaves, and reports no more
  double is_stopped = 0;
  double steps = 0;
  double loss_sum = 0, loss_steps = 0;  ///< of this epoch
  WorkerCosts costs;
  HeldOutSums held_out;
};
static_assert(std::is_trivially_copyable_v<WorkerReport>);

/// A report, or words for the user.
struct WorkerMessage {
  std::optional<WorkerReport> report;
  std::string words;
};

Segments encode_message(const WorkerMessage& message);
/// Nothing where the segments are none of a message.
std::optional<WorkerMessage> decode_message(const Segments& segments);

}  // namespace tulle::nn
