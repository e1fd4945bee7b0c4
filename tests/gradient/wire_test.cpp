// Trainings on TCP whose wires flip bits: replicas end alike, or all ranks have an error that names the link.
#include "comm_tcp/tcp_fixture.hpp"
#include "comm_tcp/wire_proxy.hpp"
#include "gradient/training.hpp"
#include "tulle/comm/tcp.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;
using tulle::testing::Lobby;
using tulle::testing::LobbyRendezvous;
using tulle::testing::ProxiedRendezvous;
using tulle::testing::WireFault;
using tulle::testing::WireProxy;

constexpr int kRanks = 2;

struct Job {
  std::vector<Values> weights = std::vector<Values>(kRanks);
  std::vector<std::string> errors = std::vector<std::string>(kRanks);
  int faults = 0;
};

Job train(const std::string& recipe, const WireFault& fault) {
  const std::vector<Parameter> parameters = {{"weight", 20'000}, {"bias", 40}};
  Job job;
  WireProxy proxy(kRanks, {fault});
  Lobby lobby(kRanks);
  tulle::testing::run_ranks(kRanks, [&](int rank) {
    LobbyRendezvous inner(lobby, rank);
    ProxiedRendezvous rendezvous(inner, proxy);
    Values& weights = job.weights[static_cast<std::size_t>(rank)];
    job.errors[static_cast<std::size_t>(rank)] = tulle::testing::error_of([&] {
      Communicator communicator = connect(rendezvous, {.deadline_seconds = 10});
      communicator.set_default_deadline(20);
      Synchronizer synchronizer = Synchronizer::make(communicator, parameters, parse_recipe(recipe));
      for (std::uint64_t step = 0; step < 6; ++step) {
        std::vector<Values> gradients;
        for (ParameterId id = 0; id < parameters.size(); ++id) {
          gradients.push_back(integer_gradient(parameters[id].size, rank, step, id));
          synchronizer.start(id, std::span<const float>(gradients.back()));
        }
        synchronizer.end_step();
        for (ParameterId id = 0; id < parameters.size(); ++id) {
          synchronizer.finish_into(id, gradients[id]);
          weights.insert(weights.end(), gradients[id].begin(), gradients[id].end());
        }
      }
    });
  });
  job.faults = proxy.happened();
  return job;
}

TEST(GradientWire, AFlippedBitIsAnErrorOnAllRanksOrHasNotHappened) {
  for (const std::string recipe : {"dense", "topk:5%"}) {
    int faults = 0;
    for (std::uint64_t i = 0; i < 24; ++i) {
      const WireFault fault{
          .from = static_cast<int>(i % 2), .to = static_cast<int>(1 - i % 2), .at = 80 + i * i * 211, .bit = 6};
      const Job job = train(recipe, fault);
      faults += job.faults;
      if (job.faults == 0) {
        EXPECT_EQ(job.errors, std::vector<std::string>(kRanks, "no error"));
        EXPECT_EQ(job.weights[0], job.weights[1]);
        continue;
      }
      // In the last step one rank may have all that it needs before the other sees the fault.
      const std::string& receiver = job.errors[static_cast<std::size_t>(fault.to)];
      EXPECT_TRUE(tulle::testing::contains(receiver, "bytes were damaged on the way")) << receiver;
      const std::string& sender = job.errors[static_cast<std::size_t>(fault.from)];
      EXPECT_TRUE(tulle::testing::contains(sender, "bytes were damaged on the way") || sender == "no error") << sender;
    }
    EXPECT_GT(faults, 12);
  }
}

}  // namespace
}  // namespace tulle::gradient
