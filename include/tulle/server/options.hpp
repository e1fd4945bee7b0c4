// What the ranks of a parameter server agree on: who serves, how changes travel, and how long a step waits for whom.
//
// The first `servers` ranks of a communicator hold the parameters, each whole on one of them; all others are workers.
// docs/server.md explains steps, backup workers and staleness, and gives the messages byte by byte.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tulle/gradient/synchronizer.hpp"

#pragma GCC visibility push(default)
namespace tulle::server {

using gradient::Parameter;
using gradient::ParameterId;
using gradient::Recipe;
using gradient::Role;

/// Equal on all ranks; workers that differ are refused with the first difference.
///
/// A recipe says how a change is selected and coded and whether what that loses is kept: `dense`, `int8`,
/// `three_value_stochastic`, `one_bit`, `sparse5`, `local2` and `three_lc:s=1.75` are the designs of 3LC's Table 1.
/// What it says about rows of collectives is not looked at; what would be a second optimizer is refused (momentum,
/// weight decay, clipping, warm-up, an outer step), as are rows that select while they communicate and thin matrices.
struct Options {
  int servers = 1;
  /// A step does not wait for so many of the workers: it ends with the pushes of the others.
  int backup = 0;
  /// Once the pushes that a step needs are in, it waits so long for those of the backup workers: Decoupled DiLoCo's
  /// quorum (all workers but `backup`) with a grace window. 0: it ends at once.
  double grace_seconds = 0;
  /// How many versions old the model may be that a push was computed on. A worker goes on while at most so many of its
  /// pushes are not settled. 0: synchronous steps.
  std::uint64_t staleness = 0;
  Recipe push = {};
  std::optional<Recipe> pull = {};  ///< unset: as `push`, without its local steps
  std::uint64_t seed = 0;           ///< of everything random
  double deadline_seconds = 300;    ///< how long a worker waits for an answer, and a server for any worker
  std::uint32_t port = 0;           ///< number of the datagram port
  int threads = 1;                  ///< of selecting and coding; 0: all that there are
  std::string job = {};             ///< what else has to be equal, in words and on one line, such as batches and epochs
};

/// Who a process is in the job. One that came later, to a lost worker's place, has another number in its communicator.
struct Place {
  int rank = 0;
  int ranks = 0;  ///< of the job
};

/// Throws bad_input naming what is out of bounds for `ranks` ranks, or what a recipe has that does not fit.
void validate(const Options& options, int ranks);

/// The server of each parameter: the largest come first, each to the server that holds least. The same on all ranks.
std::vector<int> servers_of(std::span<const Parameter> parameters, int servers);

/// SGD on the servers: v ← momentum·v + g + weight_decay·w, w ← w − rate·v. g is the mean of the accepted pushes by
/// their weights.
struct Sgd {
  double rate = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  /// Factor of the rate in step 0, 1, … of a parameter; unset: 1. Equal on all servers.
  std::function<double(std::uint64_t step)> schedule = {};
};

}  // namespace tulle::server
#pragma GCC visibility pop
