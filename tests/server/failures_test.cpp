// What goes wrong with a server or a worker is noticed, named and told in time; the others go on.
#include "comm/loopback.hpp"
#include "comm_tcp/processes.hpp"
#include "server/letters.hpp"
#include "server/mail.hpp"
#include "server/training.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/comm/tcp.hpp"

namespace tulle::server {
namespace {

using namespace testing;
using namespace tulle::testing;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

const std::vector<Parameter> kParameters = {{"w", 40}, {"b", 3, Role::bias_or_norm}};

// ---------------------------------------------------------------- workers

TEST(ServerFailures, a_worker_that_ends_early_is_named_and_the_others_go_on) {
  for (const int servers : {1, 2}) {
    Job job{.workers = 4, .options = {.servers = servers, .push = parse_recipe("three_lc")}, .versions = 12};
    const int victim = servers + 2;
    Trained trained;
    // Its destructor tells, because nothing is kept of it.
    job.dies = [&](int rank, std::uint64_t step) {
      if (rank == victim && step == 5) throw Error(ErrorKind::system, "its data are gone");
      return false;
    };
    try_train(job, trained);
    for (int rank = 0; rank < servers + 4; ++rank) {
      EXPECT_EQ(message_of(trained.errors[static_cast<std::size_t>(rank)]), rank == victim ? "its data are gone" : "");
    }
    for (const auto& server : trained.servers) {
      ASSERT_EQ(server->losses().size(), 1u);
      EXPECT_EQ(server->losses()[0].rank, victim);
      EXPECT_TRUE(contains(server->losses()[0].reason, "ended without leaving"));
      for (const ParameterId id : server->shard()) EXPECT_EQ(server->version(id), 12u);
    }
    EXPECT_EQ(trained.models[0], trained.models[3]);
  }
}

TEST(ServerFailures, a_worker_that_falls_silent_does_not_stop_steps_with_a_backup) {
  Job job{.workers = 3, .options = {.backup = 1, .deadline_seconds = 20}, .versions = 12};
  job.dies = [](int rank, std::uint64_t step) { return rank == 2 && step == 3; };
  Trained trained;
  try_train(job, trained);
  EXPECT_EQ(message_of(trained.errors[1]), "");
  EXPECT_EQ(message_of(trained.errors[3]), "");
  EXPECT_EQ(trained.servers[0]->version(0), 12u);
  // Nobody ever says that it is dead, so that the server waits for it and then names it.
  EXPECT_TRUE(contains(message_of(trained.errors[0]), "workers of ranks 2 have neither left nor died"));
}

TEST(ServerFailures, a_job_whose_workers_are_all_lost_ends_with_their_names) {
  Job job{.workers = 2, .versions = 12};
  job.dies = [&](int, std::uint64_t step) {
    if (step == 3) throw Error(ErrorKind::system, "power");
    return false;
  };
  Trained trained;
  try_train(job, trained);
  const std::string error = message_of(trained.errors[0]);
  EXPECT_TRUE(contains(error, "every worker was lost") && contains(error, "rank 1") && contains(error, "rank 2"))
      << error;
}

// Every gradient is finite; the server's velocity, or what the worker's coding has lost, is soon no longer.
TEST(ServerFailures, what_outgrows_f32_ends_the_job_with_its_name) {
  struct Case {
    const char* push;
    double momentum;
    const char* what;
  };
  for (const auto& [push, momentum, what] :
       {Case{"dense", 0.9, "its velocity or the sum of what was pushed outgrew f32"},
        Case{"sparse5:1%", 0, "what coding has lost so far outgrew f32"}}) {
    Job job{.options = {.push = parse_recipe(push)}, .parameters = {{"weight", 400}}, .versions = 12};
    job.server_options.sgd = {.rate = 1e-30, .momentum = momentum};
    job.gradient = [](int, std::uint64_t, ParameterId, std::span<const float> weights) {
      return Values(weights.size(), 1.2e38f);
    };
    Trained trained;
    try_train(job, trained);
    const std::string error = message_of(trained.errors[1]);
    EXPECT_TRUE(contains(error, std::string("weight: ") + what)) << error;
    EXPECT_NE(message_of(trained.errors[0]), "");
  }
}

TEST(ServerFailures, a_worker_with_other_parameters_or_options_is_told_the_first_difference) {
  SimWorld world({.ranks = 3});
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    Options options;
    if (communicator.rank() == 0) {
      Server server = Server::make(communicator, kParameters, options, {});
      Task<> running = server.await_run();
      co_await running;
    }
    std::vector<Parameter> parameters = kParameters;
    if (communicator.rank() == 1) parameters[1].size = 4;
    if (communicator.rank() == 2) options.push = parse_recipe("int8");
    Worker worker = Worker::make(communicator, parameters, options);
    Values w(40), b(parameters[1].size);
    Task<> joining = worker.await_join({w, b});
    co_await joining;
  });
  EXPECT_TRUE(contains(message_of(errors[1]), "'b of 3 values, bias_or_norm', the worker 'b of 4 values"))
      << message_of(errors[1]);
  EXPECT_TRUE(contains(message_of(errors[2]), "push dense") && contains(message_of(errors[2]), "push int8"));
}

// Joins, takes some steps and ends in the middle of one; then does so again as another worker, to the last version.
Task<> live_twice(Communicator& communicator, const Job& job, Trained& trained) {
  const auto place = static_cast<std::size_t>(communicator.rank() - job.options.servers);
  std::vector<Values>& weights = trained.models[place];
  std::vector<std::span<float>> spans;
  for (const Parameter& parameter : job.parameters) weights.emplace_back(parameter.size);
  for (Values& values : weights) spans.emplace_back(values);
  for (const std::uint64_t last : {std::uint64_t{4}, job.versions}) {
    Worker worker = Worker::make(communicator, job.parameters, job.options);
    Task<> joining = worker.await_join(spans);
    co_await joining;
    for (ParameterId id = 0; id < spans.size(); ++id) {
      const Server& server = server_of(trained, job, id);
      if (server.version(id) != worker.version(id)) continue;
      EXPECT_EQ(weights[id], copy_of(server.weights(id)));
    }
    EXPECT_EQ(worker.stats().models, spans.size());
    for (std::uint64_t step = 0; step < last; ++step) {
      communicator.engine()->transport().charge(1e-3);
      for (ParameterId id = 0; id < spans.size(); ++id) {  // that are not all of one version when it joins again
        if (worker.version(id) < last) worker.push(id, job.gradient(communicator.rank(), step, id, weights[id]));
      }
      for (ParameterId id = 0; id < spans.size(); ++id) {
        Task<> pulling = worker.await_pull(id, spans[id]);
        co_await pulling;
      }
    }
    if (last < job.versions) worker.push(0, Values(weights[0].size(), 100.0f));  // nobody will count this
    if (last < job.versions) continue;
    Task<> leaving = worker.await_leave();
    co_await leaving;
  }
}

TEST(ServerFailures, a_restarted_worker_gets_the_whole_model_and_goes_on) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Job job{.workers = 3, .options = {.push = parse_recipe("three_lc")}, .versions = 12};
    Trained trained;
    trained.servers.resize(1);
    trained.models.resize(3);
    trained.push_errors.resize(3);
    trained.stats.resize(3);
    trained.steps.resize(3);
    trained.states.resize(3);
    for (const Parameter& parameter : job.parameters) trained.pushed.emplace_back(parameter.size);
    SimOptions sim{.ranks = 4, .seed = seed};
    sim.faults.max_delay_seconds = 5e-3;  // letters of the first life come when the second has begun
    SimWorld world(sim);
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      if (communicator.rank() == 0) return serve(communicator, job, trained);
      if (communicator.rank() == 3) return live_twice(communicator, job, trained);
      return work(communicator, job, trained);
    });
    for (const std::exception_ptr& error : errors) EXPECT_EQ(message_of(error), "") << seed;
    const Server& server = *trained.servers[0];
    EXPECT_EQ(server.stats().restarts, 1u);
    for (const Loss& loss : server.losses()) EXPECT_EQ(loss.rank, 3);
    for (const ParameterId id : server.shard()) {
      EXPECT_EQ(server.version(id), 12u);
      for (const auto& model : trained.models) EXPECT_EQ(model[id], copy_of(server.weights(id))) << seed;
    }
  }
}

// A worker that is not one of ours: it joins in order and then sends what `disturb` gives.
Task<> be_hostile(Communicator& communicator, const Options& options, const Segments& disturbance) {
  Worker worker = Worker::make(communicator, kParameters, options);
  Values w(40), b(3);
  Task<> joining = worker.await_join({w, b});
  co_await joining;
  // The worker's own port is taken; whoever sends to the number of the server's port is heard all the same.
  communicator.engine()->transport().send(0, [&] {
    MessageHeader header;
    header.kind = MessageKind::datagram;
    header.context = communicator.context()->id;
    header.channel = options.port;
    Segments segments = disturbance;
    Buffer head = encode_message_head(header, segments);
    return Message{std::move(head), std::move(segments), nullptr, 0};
  }());
  Values gradient(40, 1.0f);
  worker.push(0, gradient);
  Task<> pulling = worker.await_pull(0, w);
  co_await pulling;
}

// Workers of a simulation are made at its beginning.
const std::uint16_t kLife = life_at(0);

TEST(ServerFailures, what_is_no_letter_is_its_senders_end_and_nobody_elses) {
  Segments frame;
  frame.push_back(Buffer::copy_of(std::as_bytes(std::span("no frame at all"))));
  const auto push = [&](std::uint32_t parameter, std::uint64_t version) {
    return encode_letter(
        {.kind = LetterKind::push, .parameter = parameter, .sequence = 1, .version = version, .life = kLife},
        body_of(frame));
  };
  const Values not_finite(40, std::numeric_limits<float>::infinity());
  Segments infinite;
  encode_frame(Stream<float>::dense(not_finite), {.sequence = 1}, {}, infinite);
  Segments finite;
  encode_frame(Stream<float>::dense(Values(40, 1.0f)), {.sequence = 1}, {}, finite);
  const LetterHead first_push{.kind = LetterKind::push, .sequence = 1, .push = 1, .life = kLife, .weight = 1};
  LetterHead weightless = first_push;
  weightless.weight = -1;
  const std::vector<std::pair<Segments, std::string>> cases = {
      {encode_letter(first_push, body_of(infinite)), "is not finite"},
      {Segments(), "there is no head"},
      {frame, "the head is too short"},
      {push(7, 0), "'parameter'"},
      {push(0, 99), "'version'"},
      {push(0, 0), "frame"},
      {encode_letter({.kind = LetterKind::update, .sequence = 1, .life = kLife}, {}), "'kind'"},
      {encode_letter(weightless, body_of(finite)), "'weight'"},
  };
  for (const auto& [disturbance, reason] : cases) {
    Job job{.workers = 2, .parameters = kParameters};
    Trained trained;
    trained.servers.resize(1);
    trained.models.resize(2);
    trained.push_errors.resize(2);
    trained.stats.resize(2);
    trained.steps.resize(2);
    trained.states.resize(2);
    for (const Parameter& parameter : job.parameters) trained.pushed.emplace_back(parameter.size);
    SimWorld world({.ranks = 3});
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      if (communicator.rank() == 0) return serve(communicator, job, trained);
      if (communicator.rank() == 1) return work(communicator, job, trained);
      return be_hostile(communicator, job.options, disturbance);
    });
    EXPECT_EQ(message_of(errors[0]), "");
    EXPECT_EQ(message_of(errors[1]), "");
    EXPECT_TRUE(contains(message_of(errors[2]), "refuses") && contains(message_of(errors[2]), reason))
        << message_of(errors[2]) << " instead of " << reason;
    ASSERT_EQ(trained.servers[0]->losses().size(), 1u);
    EXPECT_EQ(trained.servers[0]->losses()[0].rank, 2);
    EXPECT_EQ(trained.servers[0]->version(0), job.versions);
  }
}

// ---------------------------------------------------------------- servers

TEST(ServerFailures, a_silent_server_is_named_at_the_deadline) {
  SimWorld world({.ranks = 3});
  const Options options{.servers = 2, .deadline_seconds = 5};
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    if (communicator.rank() == 1) co_return;
    if (communicator.rank() == 0) {
      Server server = Server::make(communicator, kParameters, options, {});
      Task<> running = server.await_run();
      co_await running;
      co_return;
    }
    Worker worker = Worker::make(communicator, kParameters, options);
    Values w(40), b(3);
    Task<> joining = worker.await_join({w, b});
    co_await joining;
  });
  EXPECT_TRUE(contains(message_of(errors[2]), "no answer from the server of rank 1 within 5 s"))
      << message_of(errors[2]);
  EXPECT_LT(world.elapsed_seconds(), 6);
}

TEST(ServerFailures, a_server_that_throws_tells_its_workers_why) {
  Job job{.workers = 2, .versions = 50};
  job.gradient = [](int, std::uint64_t, ParameterId, std::span<const float> weights) {
    return Values(weights.size(), 3e38f);  // their sum is not finite
  };
  Trained trained;
  try_train(job, trained);
  for (const std::exception_ptr& error : trained.errors) {
    EXPECT_TRUE(
        contains(message_of(error), "hidden: its velocity or the sum of what was pushed outgrew f32, in step 1"))
        << message_of(error);
  }
}

// A program that was spawned, or a letter that was written, is seen in the round after.
void settle(LoopbackWorld& world) {
  for (int round = 0; round < 4; ++round) world.settle();
}

TEST(ServerFailures, a_server_that_is_dropped_before_it_serves_tells_its_workers) {
  SimWorld world({.ranks = 3});
  int refused = 0;
  world.run([&](Communicator& communicator) -> Task<> {
    if (communicator.rank() == 0) {
      const Server server = Server::make(communicator, kParameters, {}, {});
      co_return;
    }
    Worker worker = Worker::make(communicator, kParameters, {});
    Values w(40), b(3);
    Task<> joining = worker.await_join({w, b});
    try {
      co_await joining;
    } catch (const Error& error) {
      refused += contains(error.what(), "has ended before its workers") ? 1 : 0;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST(ServerFailures, a_peer_event_of_the_transport_names_who_is_gone) {
  LoopbackWorld world(3);
  const Options options;
  Server server = Server::make(world[0], kParameters, options, {});
  std::vector<Worker> workers;
  workers.push_back(Worker::make(world[1], kParameters, options));
  workers.push_back(Worker::make(world[2], kParameters, options));
  Values w(40), b(3);
  Task<> serving = server.await_run(), first = workers[0].await_join({w, b}), second = workers[1].await_join({w, b});
  world[0].engine()->spawn(serving);
  world[1].engine()->spawn(first);
  world[2].engine()->spawn(second);
  settle(world);
  ASSERT_TRUE(first.done() && second.done());
  workers[0].push(0, Values(40, 1.0f));
  settle(world);
  EXPECT_EQ(server.version(0), 0u);  // waits for the second
  world.transport(0).sink().fail_peer(2, ErrorKind::peer_failed, "its host is gone");
  settle(world);
  EXPECT_EQ(server.version(0), 1u);
  ASSERT_EQ(server.losses().size(), 1u);
  EXPECT_EQ(server.losses()[0].rank, 2);
  EXPECT_TRUE(contains(server.losses()[0].reason, "its host is gone"));
  world.transport(1).sink().fail_peer(0, ErrorKind::peer_failed, "its host is gone");
  EXPECT_TRUE(contains(error_of([&] { workers[0].pull(0, w); }).second, "the server of rank 0 is gone"));
  EXPECT_TRUE(contains(error_of([&] { workers[0].push(0, w); }).second, "the server of rank 0 is gone"));
}

// ---------------------------------------------------------------- real processes

// Trains on TCP; `victim` kills itself in its third step, or where it is a server when it has seen so many.
std::string run_rank(int rank, int ranks, const std::string& directory, int victim) {
  const auto rendezvous = directory_rendezvous({.path = directory, .rank = rank, .size = ranks});
  Communicator communicator = connect(*rendezvous);
  const Options options{.push = parse_recipe("three_lc"), .deadline_seconds = 20};
  if (rank == 0) {
    std::uint64_t step = 0;
    const Sgd sgd{.schedule = [&](std::uint64_t) {
      if (victim == 0 && ++step == 5) raise(SIGKILL);
      return 1.0;
    }};
    Server server = Server::make(communicator, kParameters, options, {.sgd = sgd});
    server.run();
    if (server.losses().size() != 1 || server.losses()[0].rank != victim) return "the victim was not named";
    return server.version(0) >= 8 && server.version(1) >= 8 ? "" : "the job did not go on";
  }
  Worker worker = Worker::make(communicator, kParameters, options);
  Values w(40), b(3);
  const std::vector<std::span<float>> weights = {w, b};
  try {
    worker.join(weights);
    for (int step = 0; step < 8; ++step) {
      if (rank == victim && step == 3) raise(SIGKILL);
      for (ParameterId id = 0; id < 2; ++id) worker.push(id, Values(weights[id].size(), 0.5f));
      for (ParameterId id = 0; id < 2; ++id) worker.pull(id, weights[id]);
    }
    worker.leave();
  } catch (const Error& error) {
    const bool names_server = error.peer() == 0 && contains(error.what(), "the server of rank 0 is gone");
    return victim == 0 && names_server ? "" : error.what();
  }
  return victim == 0 ? "a worker did not notice" : "";
}

TEST(ServerFailures, on_tcp_a_killed_worker_is_named_and_the_job_goes_on) {
  const TemporaryDirectory directory;
  EXPECT_EQ(run_processes(4, 30, [&](int rank) { return run_rank(rank, 4, directory.path(), 2); }),
            (std::vector<int>{0, 0, -SIGKILL, 0}));
}

TEST(ServerFailures, on_tcp_a_killed_server_is_named_by_its_workers) {
  const TemporaryDirectory directory;
  EXPECT_EQ(run_processes(3, 30, [&](int rank) { return run_rank(rank, 3, directory.path(), 0); }),
            (std::vector<int>{-SIGKILL, 0, 0}));
}

// A stopped process is no dead one: nobody but the clock tells.
TEST(ServerFailures, on_tcp_a_stopped_server_is_named_at_the_deadline) {
  const TemporaryDirectory directory;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const auto body = [&](int rank) -> std::string {
    const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = rank, .size = 2});
    Communicator communicator = connect(*rendezvous);
    pid_t server = getpid();
    if (rank == 0) {
      if (write(pipe_ends[1], &server, sizeof server) != sizeof server) return "no pipe";
      raise(SIGSTOP);
    }
    Worker worker = Worker::make(communicator, kParameters, {.deadline_seconds = 0.3});
    Values w(40), b(3);
    const std::vector<std::span<float>> weights = {w, b};
    const auto [kind, text] = error_of([&] { worker.join(weights); });
    if (read(pipe_ends[0], &server, sizeof server) != sizeof server) return "no pipe";
    kill(server, SIGKILL);
    return kind == ErrorKind::deadline && contains(text, "the server of rank 0") ? "" : text;
  };
  EXPECT_EQ(run_processes(2, 30, body), (std::vector<int>{-SIGKILL, 0}));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace tulle::server
