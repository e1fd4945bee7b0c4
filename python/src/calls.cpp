// Communicators, collectives and their requests.
//
// Every call starts a request and waits for it in slices: between them Python looks for signals, so that Ctrl-C ends a
// wait. The GIL is released whenever the library works.

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/learning.hpp"
#include "core.hpp"
#include "group.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/admission.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/profile_file.hpp"
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
    text = value.cast<std::string>();
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
    {"op", [](Options& o, const py::handle& v) { o.call.op = op_from(v.cast<std::string>()); }},
    {"root", [](Options& o, const py::handle& v) { o.call.root = v.cast<int>(); }},
    {"density", [](Options& o, const py::handle& v) { o.call.density = v.cast<double>(); }},
    {"k", [](Options& o, const py::handle& v) { o.call.k = v.cast<std::uint64_t>(); }},
    {"value_coding",
     [](Options& o, const py::handle& v) { o.call.value_coding = parse_value_codec(v.cast<std::string>()); }},
    {"coded_values",
     [](Options& o, const py::handle& v) { o.call.coded_values = named(v, kCodedValues, "kind of values"); }},
    {"residual", [](Options& o, const py::handle& v) { o.call.residual = named(v, kResidualModes, "residual mode"); }},
    {"teams", [](Options& o, const py::handle& v) { o.call.teams = v.cast<int>(); }},
    {"threshold_period", [](Options& o, const py::handle& v) { o.call.threshold_period = v.cast<std::uint32_t>(); }},
    {"region_period", [](Options& o, const py::handle& v) { o.call.region_period = v.cast<std::uint32_t>(); }},
    {"seed", [](Options& o, const py::handle& v) { o.call.seed = v.cast<std::uint64_t>(); }},
    {"step", [](Options& o, const py::handle& v) { o.call.step = v.cast<std::uint64_t>(); }},
    {"deadline", [](Options& o, const py::handle& v) { o.call.deadline_seconds = v.cast<double>(); }},
    {"checksum", [](Options& o, const py::handle& v) { o.call.checksum = v.cast<bool>(); }},
    {"reproducible", [](Options& o, const py::handle& v) { o.call.reproducible = v.cast<bool>(); }},
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
  AlgorithmState* history(const Shape& shape) const {
    const bool teaches = options.call.awaited_at_once && kind == OperationKind::allreduce;
    return teaches ? &history_of(communicator, shape) : nullptr;
  }
};

Call start_stream(Group& group, const py::str& kind, const AnyStream& stream, const py::str& pace,
                  const py::dict& arguments) {
  Started call(group, kind, pace, arguments);
  return {without_gil([&] {
            return start_collective(call.kind, call.communicator, stream, call.options.call,
                                    call.history(shape_of(stream)));
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
    return iallreduce_in_place(call.communicator, vector, call.options.call, call.history(shape_of(vector)));
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

void abort(Group& group, const std::string& reason) {
  const Communicator& communicator = group.get();
  const Error error = Error(ErrorKind::system, reason).at_rank(communicator.rank());
  without_gil([&] { break_communicator(communicator, error); });
}

// ---------------------------------------------------------------- connecting

// Meets by what Python gives: an object with rank, size and allgather(bytes).
class PythonRendezvous final : public Rendezvous {
 public:
  PythonRendezvous(int rank, int size, py::object allgather)
      : rank_(rank), size_(size), allgather_(std::move(allgather)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> allgather(const std::string& mine) override {
    const py::gil_scoped_acquire acquired;
    std::vector<std::string> all;
    for (const py::handle& each : allgather_(py::bytes(mine)))
      all.push_back(py::bytes(py::reinterpret_borrow<py::object>(each)));
    if (all.size() == static_cast<std::size_t>(size_)) return all;
    throw Error(ErrorKind::bad_input, "allgather of the rendezvous gave not as many strings as there are ranks");
  }

 private:
  int rank_, size_;
  py::object allgather_;
};

TcpOptions tcp_options(const std::string& interface, const std::string& ports, double deadline) {
  return {.interface = interface, .ports = ports, .deadline_seconds = deadline};
}

// On this thread, because a job's other means of communication may be bound to it.
Group connect_by_python(int rank, int size, const py::object& allgather, const std::string& interface,
                        const std::string& ports, double deadline) {
  PythonRendezvous rendezvous(rank, size, allgather);
  return Group(without_gil([&] { return connect(rendezvous, tcp_options(interface, ports, deadline)); }));
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
