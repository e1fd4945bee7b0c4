// What a training step is made of, as a file: the parameters of a network, and how long it computes for each of them.
//
// `tulle train nn --trace` records one, scripts/paper_traces writes those of the papers' networks, and a user may write
// one by hand. `tulle simulate --trace` plays it on any network. Lines of JSON, the first about all, then one for each
// parameter, in the order in which the forward pass uses them; docs/simulation.md lists the fields.
//
//   {"kind":"trace","model":"mlp","forward_seconds":0.002}
//   {"parameter":"hidden.weight","values":802816,"backward_seconds":0.003}
//   {"parameter":"output.weight","values":10240,"role":"output","backward_seconds":0.001}
//
// Threads: plain values and functions, for any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tulle/comm/profile.hpp"
#include "tulle/gradient/synchronizer.hpp"

#pragma GCC visibility push(default)
namespace tulle::gradient {

/// Scales of rows are floats, also six standard deviations off.
inline constexpr double kMostRowSpread = 10;

struct TracedParameter {
  Parameter parameter = {};
  double backward_seconds = 0;  ///< of back-propagation, from the gradient before to this one
  /// How far apart the scales of its rows are: the standard deviation of their logarithms, where gradients are drawn.
  /// 0.5 is ResNet-20's on CIFAR-10. At most kMostRowSpread.
  double row_spread = 0.5;
};

struct TrainingTrace {
  std::string model;           ///< its name
  std::string origin;          ///< where the times come from, in words
  double batch = 0;            ///< samples of a rank in a step; 0: not known
  double forward_seconds = 0;  ///< of a step
  bool overlap = true;         ///< exchanges start during back-propagation; not where all gradients are clipped first
  /// What starting a kernel takes on the machine that computes: microseconds on a GPU, nothing on a processor.
  double launch_seconds = 0;
  Profile machine;  ///< the γ of the machine that computes; α and β are not looked at
  Profile server;   ///< the same of a parameter server's host
  std::vector<TracedParameter> parameters;

  /// Of a step, forward and back.
  double compute_seconds() const;
  std::uint64_t values() const;
};

/// Reads what to_text() gives. Fields that are not there have their defaults. Throws bad_input naming `source`, the
/// line and the field.
TrainingTrace parse_training_trace(std::string_view text, std::string_view source);
/// The same of a file. Throws system where it cannot be read.
TrainingTrace read_training_trace(const std::string& path);
/// As lines. Constants of the machine are written where they are not the defaults.
std::string to_text(const TrainingTrace& trace);

}  // namespace tulle::gradient
#pragma GCC visibility pop
