// A training with a parameter server: the first ranks hold the weights, the others compute.
//
// A worker runs forward and back on its share of each batch. It pulls a parameter just before the forward pass uses it,
// and pushes its gradient as soon as back-propagation has it. The servers step. Workers meet nowhere else: at the end
// of an epoch each measures its share of the held-out samples, with the running means that it has gathered itself, and
// tells rank 0, which prints. So a worker that dies takes nobody with it, and a new process may take its place.
//
// A worker's steps are counted by the versions of the model: one that was so late that others went on without it goes
// on with them, and the batches in between are left out.
#pragma once

#include <vector>

#include "nn/training.hpp"
#include "tulle/server/options.hpp"

namespace tulle::nn {

/// What all ranks of it know.
struct ServerJob {
  Communicator communicator;
  Learner& learner;
  TrainerOptions options;
  server::Options server;
  std::vector<gradient::Parameter> parameters;
  std::uint64_t steps_of_epoch = 0;
  server::Place place = {};
  std::optional<Communicator> servers = {};  ///< the servers alone, for who lets in newcomers

  int workers() const { return place.ranks - server.servers; }
  std::uint64_t every() const { return server.push.every; }
  std::uint64_t steps() const { return steps_of_epoch * static_cast<std::uint64_t>(options.epochs); }
  /// The last version of every parameter.
  std::uint64_t versions() const { return steps() / every(); }
  std::uint64_t checkpoint_steps() const;
  /// The factor of the rate that makes version `version` + 1.
  double factor(std::uint64_t version) const;
  std::string server_path() const { return options.checkpoint.path + ".server"; }
};

class ServerSession final : public Training {
 public:
  /// Not collective. The learner must outlive it. Throws bad_input naming what does not go with a parameter server.
  ServerSession(const Communicator& communicator, Learner& learner, const TrainerOptions& options);

  TrainResult train() override;
  Evaluation evaluate() override;

 private:
  bool is_server() const { return job_.place.rank < job_.server.servers; }

  ServerJob job_;
};

}  // namespace tulle::nn
