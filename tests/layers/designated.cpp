// Options as README.md writes them, with names for those that are meant: without a word from -Wextra, which warns where
// a field that is left out has no default. Compiled only.
#include <tulle/comm/agree.hpp>
#include <tulle/gradient/elastic.hpp>
#include <tulle/linear/csr_file.hpp>
#include <tulle/linear/dataset.hpp>
#include <tulle/linear/train.hpp>
#include <tulle/nn/data.hpp>
#include <tulle/nn/options.hpp>
#include <tulle/nn/train.hpp>
#include <tulle/server/server.hpp>
#include <tulle/tulle.hpp>

namespace {

template <class Options>
void take(const Options&) {}

[[maybe_unused]] void write_options() {
  take<tulle::CallOptions>({.algorithm = "ssar_split_allgather"});
  take<tulle::CallOptions>({.density = 0.01});
  take<tulle::OperationSettings>({.deadline_seconds = 5});
  take<tulle::AgreeOptions>({.deadline_seconds = 5});
  take<tulle::Heartbeat>({.interval_seconds = 1});
  take<tulle::TcpOptions>({.deadline_seconds = 5});
  take<tulle::DoorOptions>({.port = 30500});
  take<tulle::JoinOptions>({.port = 30500});
  take<tulle::AddressRendezvousOptions>({.port = 30500});
  take<tulle::DirectoryRendezvousOptions>({.rank = 1});
  take<tulle::SimOptions>({.ranks = 4});
  take<tulle::SimFaults>({.max_delay_seconds = 1});
  take<tulle::Network>({.ranks_per_node = 2});
  take<tulle::Profile>({.alpha_seconds = 1e-6});
  take<tulle::SelectOptions>({.k = 4});
  take<tulle::gradient::Recipe>({.every = 4});
  take<tulle::gradient::SynchronizerOptions>({.seed = 1});
  take<tulle::gradient::Parameter>({.size = 10});
  take<tulle::gradient::ElasticOptions>({.most_tries = 1});
  take<tulle::gradient::StepLogOptions>({.lines = "steps.jsonl"});
  take<tulle::server::Options>({.servers = 2});
  take<tulle::server::ServerOptions>({.sgd = {}});
  take<tulle::server::Parameter>({.size = 10});
  take<tulle::linear::DataOptions>({.memory_bytes = 1});
  take<tulle::linear::TextOptions>({.skip_bad = true});
  take<tulle::linear::TrainOptions>({.epochs = 2});
  take<tulle::linear::CheckpointOptions>({.path = "checkpoint"});
  take<tulle::nn::DataOptions>({.test_path = "test.txt"});
  take<tulle::nn::TrainerOptions>({.epochs = 2});
  take<tulle::nn::NetworkOptions>({.hidden = {8}});
}

}  // namespace
