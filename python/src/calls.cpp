// Communicators, collectives and their requests.
//
// Every call starts a request and waits for it in slices: between them Python looks for signals, so that Ctrl-C ends a
// wait. The GIL is released whenever the library works.

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/remembered.hpp"
#include "core.hpp"
#include "group.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/admission.hpp"
#include "tulle/comm/context.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/profile_file.hpp"
#include "tulle/comm/settings.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::python {
namespace {

// Runs what knows nothing of signals on a thread of its own, which is left behind when a signal handler raises.
template <class T>
T run_beside(std::function<T()> work) {
  std::packaged_task<T()> task(std::move(work));
  std::future<T> result = task.get_future();
  std::thread(std::move(task)).detach();
  while (without_gil([&] { return result.wait_for(kSlice); }) != std::future_status::ready) look_for_signals();
  return result.get();
}

// ---------------------------------------------------------------- options

struct Options {
  CallOptions call;
  std::string algorithm, index_coding, team_gather;  ///< that `call` views

  void own(std::string_view& field, std::string& text, const py::handle& value) {
    text = read<std::string>(value);
    field = text;
  }
};

constexpr Named<ResidualMode> kResidualModes[] = {
    {"global", ResidualMode::global}, {"partial", ResidualMode::partial}, {"local", ResidualMode::local}};
constexpr Named<CodedValues> kCodedValues[] = {
    {"sums", CodedValues::sums}, {"contributions", CodedValues::contributions}, {"both", CodedValues::both}};

const Setter<Options> kSetters[] = {
    {"algorithm", [](Options& o, const py::handle& v) { o.own(o.call.algorithm, o.algorithm, v); }},
    {"index_coding", [](Options& o, const py::handle& v) { o.own(o.call.index_coding, o.index_coding, v); }},
    {"team_gather", [](Options& o, const py::handle& v) { o.own(o.call.team_gather, o.team_gather, v); }},
    {"op", [](Options& o, const py::handle& v) { o.call.op = op_from(read<std::string>(v, "a name, such as 'max'")); }},
    {"root", [](Options& o, const py::handle& v) { o.call.root = read<int>(v); }},
    {"density", [](Options& o, const py::handle& v) { o.call.density = read<double>(v); }},
    {"k", [](Options& o, const py::handle& v) { o.call.k = read<std::uint64_t>(v); }},
    {"value_coding",
     [](Options& o, const py::handle& v) { o.call.value_coding = parse_value_codec(read<std::string>(v)); }},
    {"coded_values",
     [](Options& o, const py::handle& v) { o.call.coded_values = named(v, kCodedValues, "kind of values"); }},
    {"residual", [](Options& o, const py::handle& v) { o.call.residual = named(v, kResidualModes, "residual mode"); }},
    {"teams", [](Options& o, const py::handle& v) { o.call.teams = read<int>(v); }},
    {"threshold_period", [](Options& o, const py::handle& v) { o.call.threshold_period = read<std::uint32_t>(v); }},
    {"region_period", [](Options& o, const py::handle& v) { o.call.region_period = read<std::uint32_t>(v); }},
    {"seed", [](Options& o, const py::handle& v) { o.call.seed = read<std::uint64_t>(v); }},
    {"step", [](Options& o, const py::handle& v) { o.call.step = read<std::uint64_t>(v); }},
    {"deadline", [](Options& o, const py::handle& v) { o.call.deadline_seconds = read_seconds(v); }},
    {"checksum", [](Options& o, const py::handle& v) { o.call.checksum = read<bool>(v); }},
    {"reproducible", [](Options& o, const py::handle& v) { o.call.reproducible = read<bool>(v); }},
};

constexpr Named<OperationKind> kKinds[] = {{"allreduce", OperationKind::allreduce},
                                           {"allgather", OperationKind::allgather},
                                           {"reduce_scatter", OperationKind::reduce_scatter},
                                           {"reduce", OperationKind::reduce},
                                           {"broadcast", OperationKind::broadcast}};

enum class Pace { awaited, free };
constexpr Named<Pace> kPaces[] = {{"awaited", Pace::awaited}, {"free", Pace::free}};

// ---------------------------------------------------------------- requests

// A collective that was started, and the memory that it uses.
class Call {
 public:
  Call(Request<Outcome> request, std::shared_ptr<ArrayView> array, std::shared_ptr<AlgorithmState> state)
      : array_(std::move(array)), state_(std::move(state)), request_(std::move(request)) {}
  Call(Call&&) noexcept = default;
  Call& operator=(Call&&) = delete;
  // The engine may have to run to end the operation.
  ~Call() {
    if (!request_.valid()) return;
    if (owner_ != getpid()) {
      new Call(std::move(*this));
      return;
    }
    const py::gil_scoped_release released;
    const Request<Outcome> dropped = std::move(request_);
  }

  bool is_over() const { return !request_.valid(); }
  bool test() {
    look_for_signals();
    if (is_over()) return true;
    require_here();
    return without_gil([&] { return request_.test(); });
  }
  Outcome wait() {
    if (is_over()) throw Error(ErrorKind::bad_input, "the request was waited for already");
    require_here();
    await_end(*request_.engine(), request_.operation());
    Outcome outcome = without_gil([&] { return request_.wait(); });
    array_.reset();
    return outcome;
  }

 private:
  void require_here() const {
    if (owner_ == getpid()) return;
    throw Error(ErrorKind::unsupported, "this process was forked from a rank: the request belongs to the parent");
  }

  std::shared_ptr<ArrayView> array_;
  std::shared_ptr<AlgorithmState> state_;
  pid_t owner_ = getpid();
  Request<Outcome> request_;  // goes first: it uses the others
};

struct Started {
  Options options;
  Communicator& communicator;
  OperationKind kind;

  Started(Group& group, const py::handle& name, const py::handle& pace, const py::dict& arguments)
      : communicator(group.get()), kind(named(name, kKinds, "collective")) {
    apply(options, arguments, kSetters);
    options.call.awaited_at_once = named(pace, kPaces, "pace") == Pace::awaited;
  }
  // Calls that come one at a time teach auto, as blocking ones do.
  bool is_remembered() const { return options.call.awaited_at_once && kind == OperationKind::allreduce; }
};

Call start_stream(Group& group, const py::str& kind, const AnyStream& stream, const py::str& pace,
                  const py::dict& arguments) {
  Started call(group, kind, pace, arguments);
  return {without_gil([&] {
            if (call.is_remembered()) return start_remembered(call.communicator, stream, call.options.call);
            return start_collective(call.kind, call.communicator, stream, call.options.call);
          }),
          nullptr, nullptr};
}

Accumulator accumulator_of(const ArrayView& view, const std::string& type) {
  return visit_value_type(value_type_from(type), [&]<class V>() {
    return Accumulator(std::span(reinterpret_cast<V*>(view.data()), view.bytes() / sizeof(V)));
  });
}

Call start_in_place(Group& group, const std::string& type, const py::object& array, const py::str& pace,
                    const py::dict& arguments) {
  Started call(group, py::str("allreduce"), pace, arguments);
  std::shared_ptr<ArrayView> view = view_of(array, Access::write);
  const Accumulator vector = accumulator_of(*view, type);
  Request<Outcome> request = without_gil([&] {
    if (call.is_remembered()) return start_remembered_in_place(call.communicator, vector, call.options.call);
    return iallreduce_in_place(call.communicator, vector, call.options.call);
  });
  return {std::move(request), std::move(view), nullptr};
}

Call start_top_k(Group& group, const py::str& kind, const std::string& type, const py::object& array,
                 const py::str& pace, std::shared_ptr<AlgorithmState> state, const py::dict& arguments) {
  Started call(group, kind, pace, arguments);
  std::shared_ptr<ArrayView> view = view_of(array, Access::write);
  const Accumulator accumulator = accumulator_of(*view, type);
  Request<Outcome> request = without_gil(
      [&] { return start_collective(call.kind, call.communicator, accumulator, call.options.call, state.get()); });
  return {std::move(request), std::move(view), std::move(state)};
}

py::list gather(Group& group, const std::string& bytes) {
  const Buffer mine = Buffer::copy_of(std::as_bytes(std::span(bytes)));
  Communicator& communicator = group.get();
  const std::vector<Buffer> all = finish(without_gil([&] { return igather_bytes(communicator, mine); }));
  py::list gathered;
  for (const Buffer& each : all) gathered.append(py::bytes(reinterpret_cast<const char*>(each.data()), each.size()));
  return gathered;
}

void compare_settings(Group& group, const std::vector<std::pair<std::string, std::string>>& rows) {
  std::vector<Setting> settings;
  for (const auto& [name, text] : rows) settings.push_back({name, text});
  Communicator& communicator = group.get();
  finish(without_gil([&] { return irequire_same_settings(communicator, settings); }));
}

void abort(Group& group, const std::string& reason) {
  const Communicator& communicator = group.get();
  const Error error = Error(ErrorKind::system, reason).at_rank(communicator.rank());
  without_gil([&] { break_communicator(communicator, error); });
}

// ---------------------------------------------------------------- connecting

// Strangers who connect are refused, and disturb nobody. It is told to standard error, at most once a second, because
// whoever scans ports does so quickly; without Python, because this may run on a thread that has not its lock.
void tell_of_refusal(const std::string& address, const std::string& reason) {
  static std::mutex mutex;
  static Clock::time_point silent_until;
  static std::uint64_t untold = 0;
  const std::lock_guard lock(mutex);
  const Clock::time_point now = Clock::now();
  if (now < silent_until) {
    ++untold;
    return;
  }
  silent_until = now + std::chrono::seconds(1);
  const std::string more = untold == 0 ? "" : " (and " + std::to_string(untold) + " before it)";
  untold = 0;
  (void)std::fprintf(stderr, "tulle: refused a connection from %s: %s%s\n", address.c_str(), reason.c_str(),
                     more.c_str());
}

TcpOptions tcp_options(const std::string& interface, const std::string& ports, double deadline) {
  return {.interface = interface, .ports = ports, .deadline_seconds = deadline, .on_refusal = tell_of_refusal};
}

// Where the thread that connects and the one that called meet: a job's other means of communication may be bound to the
// latter, which therefore makes the exchanges, and between them looks for signals.
class Meeting {
 public:
  /// Of the thread that connects: what every rank gives. Throws where the caller has left.
  std::vector<std::string> exchange(const std::string& mine) {
    std::unique_lock lock(mutex_);
    wanted_ = mine;
    changed_.notify_all();
    changed_.wait(lock, [&] { return given_ || is_left_; });
    if (!given_) throw Error(ErrorKind::system, "connecting was interrupted");
    return *std::exchange(given_, std::nullopt);
  }
  void end() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

  /// Of the caller: waits for as long as signals may wait.
  void wait_a_slice() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSlice, [&] { return wanted_ || is_over_; });
  }
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return is_over_;
  }
  std::optional<std::string> wanted() {
    const std::lock_guard lock(mutex_);
    return std::exchange(wanted_, std::nullopt);
  }
  void give(std::vector<std::string> all) {
    const std::lock_guard lock(mutex_);
    given_ = std::move(all);
    changed_.notify_all();
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    is_left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> wanted_;
  std::optional<std::vector<std::string>> given_;
  bool is_over_ = false, is_left_ = false;
};

class MeetingRendezvous final : public Rendezvous {
 public:
  MeetingRendezvous(int rank, int size, std::shared_ptr<Meeting> meeting)
      : rank_(rank), size_(size), meeting_(std::move(meeting)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> allgather(const std::string& mine) override { return meeting_->exchange(mine); }

 private:
  int rank_, size_;
  std::shared_ptr<Meeting> meeting_;
};

std::vector<std::string> gathered_by_python(const py::object& allgather, int size, const std::string& mine) {
  std::vector<std::string> all;
  for (const py::handle& each : allgather(py::bytes(mine)))
    all.push_back(py::bytes(py::reinterpret_borrow<py::object>(each)));
  if (all.size() == static_cast<std::size_t>(size)) return all;
  throw Error(ErrorKind::bad_input, "allgather of the rendezvous gave not as many strings as there are ranks");
}

// Meets by what Python gives: an object with rank, size and allgather(bytes).
Group connect_by_python(int rank, int size, const py::object& allgather, const std::string& interface,
                        const std::string& ports, double deadline) {
  const auto meeting = std::make_shared<Meeting>();
  std::packaged_task<Communicator()> task([=] {
    const std::shared_ptr<void> at_the_end(nullptr, [meeting](void*) { meeting->end(); });
    MeetingRendezvous rendezvous(rank, size, meeting);
    return connect(rendezvous, tcp_options(interface, ports, deadline));
  });
  std::future<Communicator> result = task.get_future();
  std::thread(std::move(task)).detach();
  try {
    while (!meeting->is_over()) {
      without_gil([&] { meeting->wait_a_slice(); });
      look_for_signals();
      if (const std::optional<std::string> mine = meeting->wanted()) {
        meeting->give(gathered_by_python(allgather, size, *mine));
      }
    }
  } catch (...) {
    meeting->leave();
    throw;
  }
  return Group(without_gil([&] { return result.get(); }));
}

using MakeRendezvous = std::function<std::unique_ptr<Rendezvous>()>;
Group connect_by(MakeRendezvous make, const std::string& interface, const std::string& ports, double deadline) {
  return Group(run_beside<Communicator>([=] { return connect(*make(), tcp_options(interface, ports, deadline)); }));
}

Group connect_by_environment(const std::string& interface, const std::string& ports, double deadline) {
  return connect_by([=] { return environment_rendezvous(deadline); }, interface, ports, deadline);
}

Group connect_by_address(const std::string& host, std::uint16_t port, int rank, int size, const std::string& interface,
                         const std::string& ports, double deadline) {
  const AddressRendezvousOptions options{
      .host = host, .port = port, .rank = rank, .size = size, .deadline_seconds = deadline};
  return connect_by([=] { return address_rendezvous(options); }, interface, ports, deadline);
}

Group connect_by_directory(const std::string& path, int rank, int size, const std::string& interface,
                           const std::string& ports, double deadline) {
  const DirectoryRendezvousOptions options{.path = path, .rank = rank, .size = size, .deadline_seconds = deadline};
  return connect_by([=] { return directory_rendezvous(options); }, interface, ports, deadline);
}

// Admission waits for newcomers that may be slow, and knows nothing of signals.
Group admit_newcomers(Group& group, const std::shared_ptr<Door>& door, const std::string& interface,
                      const std::string& ports, double deadline) {
  return Group(run_beside<Communicator>([members = group.get(), door, interface, ports, deadline]() mutable {
    return admit(members, door.get(), tcp_options(interface, ports, deadline));
  }));
}

Group join_at(const std::string& host, std::uint16_t port, double wait, const std::string& interface,
              const std::string& ports, double deadline) {
  const JoinOptions where{.host = host, .port = port, .deadline_seconds = wait};
  return Group(run_beside<Communicator>([=] { return join(where, tcp_options(interface, ports, deadline)); }));
}

// The ranks' handles outlive the threads that made them.
std::vector<Group> thread_groups(int ranks) {
  std::vector<std::optional<Communicator>> made(static_cast<std::size_t>(std::max(ranks, 0)));
  without_gil(
      [&] { run_threads(ranks, [&](Communicator& each) { made[static_cast<std::size_t>(each.rank())] = each; }); });
  std::vector<Group> groups;
  for (std::optional<Communicator>& each : made) groups.emplace_back(std::move(*each));
  return groups;
}

// ---------------------------------------------------------------- binding

py::dict counts_of(const Outcome& outcome) {
  py::dict counts;
  counts["messages_sent"] = outcome.counts.messages_sent;
  counts["messages_received"] = outcome.counts.messages_received;
  counts["bytes_sent"] = outcome.counts.bytes_sent;
  counts["data_bytes_sent"] = outcome.counts.data_bytes_sent;
  counts["data_bytes_received"] = outcome.counts.data_bytes_received;
  return counts;
}

void bind_outcome(py::module_& module) {
  py::class_<Outcome>(module, "Outcome")
      .def_readonly("stream", &Outcome::stream)
      .def_readonly("taken", &Outcome::taken)
      .def_property_readonly("delivered", [](const Outcome& outcome) { return Memory{outcome.delivered}; })
      .def_property_readonly("algorithm", [](const Outcome& outcome) { return text(outcome.algorithm); })
      .def_property_readonly("counts", &counts_of)
      .def_readonly("contributed", &Outcome::contributed)
      .def_readonly("overflowed", &Outcome::overflowed)
      .def_readonly("select_seconds", &Outcome::select_seconds);
  py::class_<AlgorithmState, std::shared_ptr<AlgorithmState>>(module, "AlgorithmState")
      .def(py::init<>())
      .def("save", [](const AlgorithmState& state) { return save_state(state); })
      .def_static("load", [](const std::string& saved) { return std::make_shared<AlgorithmState>(load_state(saved)); });
}

void bind_group(py::module_& module) {
  py::class_<Group>(module, "Group")
      .def_property_readonly("rank", [](Group& group) { return group.get().rank(); })
      .def_property_readonly("size", [](Group& group) { return group.get().size(); })
      .def_property_readonly("nodes",
                             [](Group& group) {
                               const std::span<const int> nodes = group.get().nodes();
                               return std::vector<int>(nodes.begin(), nodes.end());
                             })
      .def("transport", [](Group& group) { return group.get().engine()->transport().name(); })
      .def("set_default_deadline", [](Group& group, double seconds) { group.get().set_default_deadline(seconds); })
      .def("default_deadline", [](Group& group) { return group.get().context()->default_deadline_seconds; })
      .def("channel", [](Group& group, std::uint32_t number) { return Group(group.get().channel(number)); })
      .def("split",
           [](Group& group, int color, int key) {
             Communicator& communicator = group.get();
             return Group(finish(without_gil([&] { return communicator.isplit(color, key); })));
           })
      .def("barrier",
           [](Group& group) {
             Communicator& communicator = group.get();
             finish(without_gil([&] { return ibarrier(communicator); }));
           })
      .def("gather_bytes", &gather)
      .def("require_same_settings", &compare_settings)
      .def("load_profile",
           [](Group& group, const std::string& path) {
             Communicator& communicator = group.get();
             without_gil([&] { load_profile(communicator, path); });
           })
      .def("start_progress_thread",
           [](Group& group) {
             Communicator& communicator = group.get();
             without_gil([&] { communicator.start_progress_thread(); });
           })
      .def("admit", &admit_newcomers)
      .def("abort", &abort)
      .def("close", &Group::close)
      .def("start_stream", &start_stream)
      .def("start_in_place", &start_in_place)
      .def("start_top_k", &start_top_k);
}

}  // namespace

void bind_calls(py::module_& module) {
  bind_outcome(module);
  bind_group(module);
  py::class_<Call>(module, "Call")
      .def_property_readonly("is_over", &Call::is_over)
      .def("test", &Call::test)
      .def("wait", &Call::wait);
  py::class_<Door, std::shared_ptr<Door>>(module, "Door")
      .def(py::init([](const std::string& host, std::uint16_t port, double answer) {
        return std::make_shared<Door>(DoorOptions{.host = host, .port = port, .answer_seconds = answer});
      }))
      .def_property_readonly("port", &Door::port)
      .def("waiting", &Door::waiting);
  module.def("join_at", &join_at);
  module.def("connect_by_environment", &connect_by_environment);
  module.def("connect_by_address", &connect_by_address);
  module.def("connect_by_directory", &connect_by_directory);
  module.def("connect_by_python", &connect_by_python);
  module.def("thread_groups", &thread_groups);
}

}  // namespace tulle::python
