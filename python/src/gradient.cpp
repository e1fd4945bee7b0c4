// Recipes, and the synchronizer that passes gradients through them.
//
// Gradients come in as arrays of the buffer protocol, checked in Python. The GIL is released while the pipeline works,
// and a lock keeps callers from several threads apart, because a synchronizer takes one at a time.

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core.hpp"
#include "group.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/gradient/elastic.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::python {
namespace {

using gradient::Boundaries;
using gradient::CheckpointFiles;
using gradient::NonFinitePolicy;
using gradient::Parameter;
using gradient::ParameterId;
using gradient::ParameterStats;
using gradient::Recipe;
using gradient::Role;
using gradient::SynchronizerOptions;

// ---------------------------------------------------------------- options

constexpr Named<Role> kRoles[] = {
    {"hidden", Role::hidden}, {"output", Role::output}, {"small", Role::small}, {"bias_or_norm", Role::bias_or_norm}};
constexpr Named<NonFinitePolicy> kPolicies[] = {{"error", NonFinitePolicy::error}, {"skip", NonFinitePolicy::skip}};
constexpr Named<Boundaries> kBoundaries[] = {{"recipe", Boundaries::recipe}, {"measured", Boundaries::measured}};
constexpr Named<CheckpointFiles> kFiles[] = {{"one_per_rank", CheckpointFiles::one_per_rank},
                                             {"one_for_all", CheckpointFiles::one_for_all}};

/// For how long the caller leaves a gradient as it is.
enum class Lending { until_start_returns, until_finished };
constexpr Named<Lending> kLendings[] = {{"until_start_returns", Lending::until_start_returns},
                                        {"until_finished", Lending::until_finished}};

using Options = SynchronizerOptions;
const Setter<Options> kSetters[] = {
    {"non_finite", [](Options& o, const py::handle& v) { o.non_finite = named(v, kPolicies, "policy"); }},
    {"seed", [](Options& o, const py::handle& v) { o.seed = read<std::uint64_t>(v); }},
    {"first_channel", [](Options& o, const py::handle& v) { o.first_channel = read<std::uint32_t>(v); }},
    {"fuse_below", [](Options& o, const py::handle& v) { o.fuse_below = read<std::uint64_t>(v); }},
    {"fuse_values", [](Options& o, const py::handle& v) { o.fuse_values = read<std::uint64_t>(v); }},
    {"threads", [](Options& o, const py::handle& v) { o.threads = read<int>(v); }},
    {"boundaries", [](Options& o, const py::handle& v) { o.boundaries = named(v, kBoundaries, "kind of boundaries"); }},
    {"reproducible", [](Options& o, const py::handle& v) { o.reproducible = read<bool>(v); }},
    {"replica_check_every", [](Options& o, const py::handle& v) { o.replica_check_every = read<std::uint64_t>(v); }},
    {"weights_check_every", [](Options& o, const py::handle& v) { o.weights_check_every = read<std::uint64_t>(v); }},
    {"residual_norms", [](Options& o, const py::handle& v) { o.residual_norms = read<bool>(v); }},
    {"deadline", [](Options& o, const py::handle& v) { o.deadline_seconds = read_seconds(v); }},
    {"undo", [](Options& o, const py::handle& v) { o.undo = read<bool>(v); }},
};

// A name with knobs and stages, or an object of JSON.
Recipe recipe_of(const std::string& text) {
  return text.starts_with('{') ? gradient::recipe_from_json(text) : gradient::parse_recipe(text);
}

std::vector<Parameter> parameters_of(const py::list& rows) {
  std::vector<Parameter> parameters;
  for (const py::handle& row : rows) {
    const auto [name, size, role, matrix_rows] =
        row.cast<std::tuple<std::string, std::uint64_t, py::str, std::uint64_t>>();
    parameters.push_back({name, size, named(role, kRoles, "role"), matrix_rows});
  }
  return parameters;
}

// ---------------------------------------------------------------- the synchronizer

// Runs a task that awaits exchanges. Where a signal handler raises, the communicator is broken, so that the task, which
// uses memory of the caller's, ends here before that goes.
void run_in_slices(Communicator& communicator, Task<>& task) {
  Engine& engine = *communicator.engine();
  without_gil([&] { engine.spawn(task); });
  const auto is_done = [&] { return task.done(); };
  try {
    wait_in_slices(engine, is_done);
  } catch (py::error_already_set&) {
    without_gil([&] {
      const Error error(ErrorKind::system, "a call was interrupted by a signal");
      break_communicator(communicator, Error(error).at_rank(communicator.rank()));
      engine.progress_until(is_done, Engine::kLooksAtTheClock);
    });
    throw;
  }
  without_gil([&] { task.take(); });
}

template <class T>
T run_in_slices(Communicator& communicator, Task<T> task) {
  std::optional<T> result;
  Task<> storing = store_result(std::move(task), result);
  run_in_slices(communicator, storing);
  return std::move(*result);
}

struct Given {
  ParameterId parameter;
  std::shared_ptr<ArrayView> gradient;
  std::shared_ptr<ArrayView> weights;  ///< null where there are none
};

template <class V>
std::span<const V> values_of(const std::shared_ptr<ArrayView>& view) {
  if (!view) return {};
  return {reinterpret_cast<const V*>(view->data()), view->bytes() / sizeof(V)};
}

class Synchronizer {
 public:
  Synchronizer(Communicator communicator, gradient::Synchronizer made)
      : communicator_(std::move(communicator)), made_(std::make_unique<gradient::Synchronizer>(std::move(made))) {}
  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;
  ~Synchronizer() {
    if (owner_ != getpid()) {  // a forked child has not the threads that its destructor would wait for
      (void)made_.release();
      new Communicator(std::move(communicator_));
      return;
    }
    const py::gil_scoped_release released;
    made_.reset();
  }

  /// Calls `function(synchronizer)` without the GIL, while no other thread does.
  template <class Function>
  auto with(Function function) {
    require_here();
    return without_gil([&] {
      const std::lock_guard lock(mutex_);
      return function(*made_);
    });
  }
  /// Runs the task that `make(synchronizer)` gives.
  template <class Make>
  auto run(Make make) {
    require_here();
    const auto lock = without_gil([&] { return std::unique_lock(mutex_); });
    communicator_ = made_->communicator();  // which is another one after run_elastic() has shrunk it
    auto task = make(*made_);
    if constexpr (std::is_same_v<decltype(task), Task<>>) {
      run_in_slices(communicator_, task);
    } else {
      return run_in_slices(communicator_, std::move(task));
    }
  }

  /// Keeps the memory of gradients that are lent. REQUIRES: the GIL; called before they are started. Where that throws
  /// they are kept all the same, because an exchange may have begun.
  void keep(const std::vector<Given>& given) {
    for (const Given& each : given) lent_.emplace(each.parameter, each.gradient);
  }
  /// Lets go of what was lent for a parameter. REQUIRES: the GIL; its finish has returned.
  void let_go(ParameterId parameter) { lent_.erase(parameter); }

  /// For run_elastic(), which uses it between steps. REQUIRES: no other thread uses it.
  gradient::Synchronizer& get() {
    require_here();
    return *made_;
  }

 private:
  void require_here() const {
    release_ended_views();
    if (owner_ == getpid()) return;
    throw Error(ErrorKind::unsupported, "this process was forked from a rank: the synchronizer belongs to the parent");
  }

  pid_t owner_ = getpid();
  std::mutex mutex_;
  Communicator communicator_;
  std::unique_ptr<gradient::Synchronizer> made_;
  std::multimap<ParameterId, std::shared_ptr<ArrayView>> lent_;  ///< gradients in flight; the GIL guards it
};

std::shared_ptr<Synchronizer> make_synchronizer(Group& group, const py::list& parameters, const std::string& recipe,
                                                const py::dict& arguments) {
  Communicator& communicator = group.get();
  Options options;
  apply(options, arguments, kSetters);
  Task<gradient::Synchronizer> making =
      gradient::Synchronizer::await_make(communicator, parameters_of(parameters), recipe_of(recipe), options);
  return std::make_shared<Synchronizer>(communicator, run_in_slices(communicator, std::move(making)));
}

// Rows of (parameter, gradient, weights or None), all gradients of one type. Lent ones are left as they are until they
// are finished; those of 16 bits are widened to memory that the next one needs.
void start(Synchronizer& synchronizer, const std::string& type, const py::list& rows, const py::str& lending) {
  std::vector<Given> given;
  for (const py::handle& row : rows) {
    const auto [parameter, gradient, weights] = row.cast<std::tuple<ParameterId, py::object, py::object>>();
    given.push_back(
        {parameter, view_of(gradient, Access::read), weights.is_none() ? nullptr : view_of(weights, Access::read)});
  }
  const auto start_all = [&]<class V>() {
    synchronizer.with([&](gradient::Synchronizer& made) {
      for (const Given& each : given)
        made.start(each.parameter, values_of<V>(each.gradient), values_of<float>(each.weights));
    });
  };
  const auto start_lent = [&] {
    synchronizer.keep(given);
    synchronizer.with([&](gradient::Synchronizer& made) {
      for (const Given& each : given)
        made.start_lent(each.parameter, values_of<float>(each.gradient), values_of<float>(each.weights));
    });
  };
  const bool is_lent = named(lending, kLendings, "lending") == Lending::until_finished;
  switch (value_type_from(type)) {
    case ValueType::f32: return is_lent ? start_lent() : start_all.operator()<float>();
    case ValueType::f16: return start_all.operator()<Half>();
    case ValueType::bf16: return start_all.operator()<Bfloat16>();
    default: throw Error(ErrorKind::bad_input, "gradients are f32, f16 or bf16, not " + type);
  }
}

struct Target {
  ParameterId parameter;
  std::shared_ptr<ArrayView> update;  ///< null: it is dropped
};

Task<> finish_targets(gradient::Synchronizer& synchronizer, std::vector<Target>& targets, std::vector<bool>& applied) {
  for (const Target& target : targets) {
    if (target.update) {
      const std::span update(reinterpret_cast<float*>(target.update->data()), target.update->bytes() / sizeof(float));
      Task<bool> finishing = synchronizer.await_finish_into(target.parameter, update);
      applied.push_back(co_await finishing);
    } else {
      Task<gradient::Update> finishing = synchronizer.await_finish(target.parameter);
      const gradient::Update update = co_await finishing;
      applied.push_back(!update.is_skipped);
    }
  }
}

// Rows of (parameter, array of f32 or None). One task for all of them: waking the driver for each costs more.
std::vector<bool> finish_into(Synchronizer& synchronizer, const py::list& rows) {
  std::vector<Target> targets;
  for (const py::handle& row : rows) {
    const auto [parameter, array] = row.cast<std::tuple<ParameterId, py::object>>();
    targets.push_back({parameter, array.is_none() ? nullptr : view_of(array, Access::write)});
  }
  std::vector<bool> applied;
  synchronizer.run([&](gradient::Synchronizer& made) { return finish_targets(made, targets, applied); });
  for (const Target& target : targets) synchronizer.let_go(target.parameter);
  return applied;
}

py::tuple finish_stream(Synchronizer& synchronizer, ParameterId parameter) {
  gradient::Update update =
      synchronizer.run([&](gradient::Synchronizer& made) { return made.await_finish(parameter); });
  synchronizer.let_go(parameter);
  return py::make_tuple(std::move(update.stream), update.is_skipped);
}

// Arrays of the weights, one for each parameter, whatever their type.
void compare_weights(Synchronizer& synchronizer, const py::list& weights) {
  std::vector<std::shared_ptr<ArrayView>> views;
  for (const py::handle& each : weights) views.push_back(view_of(each, Access::read));
  synchronizer.with([&](gradient::Synchronizer& made) {
    std::vector<std::uint64_t> hashes;
    for (const auto& view : views) hashes.push_back(crc32c({view->data(), view->bytes()}));
    made.compare_weights(hashes);
  });
}

// ---------------------------------------------------------------- what it tells

py::dict dict_of(const ParameterStats& stats) {
  py::dict row;
  row["step"] = stats.step;
  row["taken"] = stats.taken;
  row["delivered"] = stats.delivered;
  row["out_of_teams"] = stats.out_of_teams;
  row["bytes_sent"] = stats.bytes_sent;
  row["bytes_received"] = stats.bytes_received;
  row["gradient_norm"] = stats.gradient_norm;
  row["residual_norm"] = stats.residual_norm;
  row["accumulate_seconds"] = stats.accumulate_seconds;
  row["select_seconds"] = stats.select_seconds;
  row["exchange_seconds"] = stats.exchange_seconds;
  row["wait_seconds"] = stats.wait_seconds;
  row["apply_seconds"] = stats.apply_seconds;
  return row;
}

// A residual, momentum and the outer step's momentum, where the recipe has them.
std::uint64_t state_bytes(const gradient::Synchronizer& synchronizer, ParameterId parameter) {
  const std::size_t values = synchronizer.residual(parameter).size() + synchronizer.momentum(parameter).size() +
                             synchronizer.outer_momentum(parameter).size();
  return values * sizeof(float);
}

py::list plan_of(Synchronizer& synchronizer) {
  std::vector<std::uint64_t> bytes;
  const std::vector<gradient::PlanRow> rows = synchronizer.with([&](gradient::Synchronizer& made) {
    for (ParameterId i = 0; i < made.parameters().size(); ++i) bytes.push_back(state_bytes(made, i));
    return made.plan();
  });
  py::list plan;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    py::dict row;
    row["parameter"] = rows[i].parameter;
    row["size"] = rows[i].size;
    row["how"] = rows[i].how;
    row["density"] = rows[i].density;
    row["together"] = rows[i].together;
    row["reason"] = rows[i].reason;
    row["state_bytes"] = bytes[i];
    plan.append(row);
  }
  return plan;
}

using Kept = std::span<const float> (gradient::Synchronizer::*)(ParameterId) const;
Memory copy_of(Synchronizer& synchronizer, ParameterId parameter, Kept kept) {
  return synchronizer.with(
      [&](gradient::Synchronizer& made) { return Memory{Buffer::copy_of(std::as_bytes((made.*kept)(parameter)))}; });
}

void load_state(Synchronizer& synchronizer, const py::list& states) {
  std::vector<Buffer> buffers;
  for (const py::handle& each : states) buffers.push_back(buffer_of(view_of(each, Access::read)));
  synchronizer.with([&](gradient::Synchronizer& made) { made.load_state(buffers); });
}

py::list list_recipes() {
  py::list list;
  for (const gradient::Preset& preset : gradient::presets()) {
    py::dict row;
    row["name"] = text(preset.name);
    row["paper"] = text(preset.paper);
    row["summary"] = text(preset.summary);
    row["first_knob"] = text(preset.first_knob);
    row["sends"] = text(preset.sends);
    row["passes"] = text(preset.passes);
    row["gives_up"] = text(preset.gives_up);
    list.append(row);
  }
  return list;
}

// ---------------------------------------------------------------- training that goes on

constexpr Named<Quorum> kQuorums[] = {{"majority", Quorum::majority}, {"any", Quorum::any}};

using Elastic = gradient::ElasticOptions;
const Setter<Elastic> kElasticSetters[] = {
    {"least_ranks", [](Elastic& o, const py::handle& v) { o.least_ranks = read<int>(v); }},
    {"most_tries", [](Elastic& o, const py::handle& v) { o.most_tries = read<int>(v); }},
    {"deadline", [](Elastic& o, const py::handle& v) { o.agree.deadline_seconds = read_seconds(v); }},
    {"patience", [](Elastic& o, const py::handle& v) { o.agree.patience_seconds = read_seconds(v); }},
    {"quorum", [](Elastic& o, const py::handle& v) { o.agree.quorum = named(v, kQuorums, "quorum"); }},
};

// An error of the library that came through Python is one again, so that run_elastic() knows its kind.
void rethrow_as_error(py::error_already_set& thrown) {
  const py::object kind = py::getattr(thrown.value(), "kind", py::none());
  if (!py::isinstance<py::str>(kind)) return;
  const auto name = kind.cast<std::string>();
  for (int number = 0; number <= static_cast<int>(kLastErrorKind); ++number) {
    const auto each = static_cast<ErrorKind>(number);
    if (to_string(each) == name) throw Error(each, py::str(thrown.value()).cast<std::string>());
  }
}

// Calls Python from a thread that has released the GIL.
template <class Call>
void call_python(Call call) {
  const py::gil_scoped_acquire held;
  try {
    call();
  } catch (py::error_already_set& thrown) {
    rethrow_as_error(thrown);
    throw;
  }
}

py::list lost_of(const std::vector<gradient::LostRank>& all) {
  py::list list;
  for (const gradient::LostRank& lost : all) {
    const py::object norm = lost.residual ? py::object(py::float_(lost.residual->norm)) : py::none();
    list.append(py::make_tuple(lost.rank, norm));
  }
  return list;
}

py::dict dict_of(const gradient::MembershipChange& change) {
  py::dict dict;
  dict["step"] = change.step;
  dict["is_undone"] = change.is_undone;
  dict["survivors"] = change.survivors;
  dict["lost"] = lost_of(change.lost);
  return dict;
}

py::dict run_elastic(Group& group, Synchronizer& synchronizer, std::uint64_t steps, const py::list& arrays,
                     const py::function& step, const py::object& on_change, const py::dict& arguments) {
  Elastic options{.steps = steps, .synchronizer = &synchronizer.get()};
  apply(options, arguments, kElasticSetters);
  std::vector<std::shared_ptr<ArrayView>> views;
  for (const py::handle& array : arrays) {
    views.push_back(view_of(array, Access::write));
    options.arrays.emplace_back(views.back()->data(), views.back()->bytes());
  }
  if (!on_change.is_none()) {
    options.on_change = [&](Communicator&, const gradient::MembershipChange& change) {
      call_python([&] { on_change(dict_of(change)); });
    };
  }
  Communicator& communicator = group.get();
  const gradient::ElasticReport report = without_gil([&] {
    return gradient::run_elastic(communicator, options, [&](Communicator&, std::uint64_t number) {
      call_python([&] {
        look_for_signals();
        step(number);
      });
    });
  });
  py::dict dict;
  dict["steps"] = report.steps;
  dict["undone"] = report.undone;
  dict["shrinks"] = report.shrinks;
  dict["lost"] = lost_of(report.lost);
  return dict;
}

// ---------------------------------------------------------------- binding

void bind_state(py::class_<Synchronizer, std::shared_ptr<Synchronizer>>& bound) {
  bound
      .def("residual",
           [](Synchronizer& s, ParameterId id) { return copy_of(s, id, &gradient::Synchronizer::residual); })
      .def("momentum",
           [](Synchronizer& s, ParameterId id) { return copy_of(s, id, &gradient::Synchronizer::momentum); })
      .def("outer_momentum",
           [](Synchronizer& s, ParameterId id) { return copy_of(s, id, &gradient::Synchronizer::outer_momentum); })
      .def("save_state",
           [](Synchronizer& s) {
             return Memory{s.with([](gradient::Synchronizer& made) { return made.save_state(); })};
           })
      .def("load_state", &load_state)
      .def("save_checkpoint",
           [](Synchronizer& s, const std::string& path, const py::str& files) {
             const CheckpointFiles kind = named(files, kFiles, "kind of files");
             s.run([&](gradient::Synchronizer& made) { return made.await_save_checkpoint(path, kind); });
           })
      .def("load_checkpoint", [](Synchronizer& s, const std::string& path) {
        return s.run([&](gradient::Synchronizer& made) { return made.await_load_checkpoint(path); });
      });
}

}  // namespace

void bind_gradient(py::module_& module) {
  py::class_<Synchronizer, std::shared_ptr<Synchronizer>> bound(module, "Synchronizer");
  bound.def(py::init(&make_synchronizer))
      .def("start", &start)
      .def("skip",
           [](Synchronizer& s, ParameterId id) { s.with([&](gradient::Synchronizer& made) { made.skip(id); }); })
      .def("end_step", [](Synchronizer& s) { s.with([](gradient::Synchronizer& made) { made.end_step(); }); })
      .def("test", [](Synchronizer& s,
                      ParameterId id) { return s.with([&](gradient::Synchronizer& made) { return made.test(id); }); })
      .def("finish", &finish_stream)
      .def("finish_into", &finish_into)
      .def("count_local_step",
           [](Synchronizer& s) { return s.with([](gradient::Synchronizer& made) { return made.count_local_step(); }); })
      .def("wants_weights",
           [](Synchronizer& s) { return s.with([](gradient::Synchronizer& made) { return made.wants_weights(); }); })
      .def("compare_weights", &compare_weights)
      .def("end_channel",
           [](Synchronizer& s) { return s.with([](gradient::Synchronizer& made) { return made.end_channel(); }); })
      .def("steps", [](Synchronizer& s) { return s.with([](gradient::Synchronizer& made) { return made.steps(); }); })
      .def("recipe",
           [](Synchronizer& s) {
             return s.with([](gradient::Synchronizer& made) { return gradient::to_string(made.recipe()); });
           })
      .def("stats",
           [](Synchronizer& s, ParameterId id) {
             return dict_of(s.with([&](gradient::Synchronizer& made) { return made.stats(id); }));
           })
      .def("plan", &plan_of)
      .def("plan_text",
           [](Synchronizer& s) { return s.with([](gradient::Synchronizer& made) { return made.plan_text(); }); })
      .def("report",
           [](Synchronizer& s) { return s.run([](gradient::Synchronizer& made) { return made.await_report(); }); });
  bind_state(bound);
  module.def("recipe_text", [](const std::string& recipe) { return gradient::to_string(recipe_of(recipe)); });
  module.def("recipe_json", [](const std::string& recipe) { return gradient::to_json(recipe_of(recipe)); });
  module.def("recipes", &list_recipes);
  module.def("run_elastic", &run_elastic);
  module.def("cached_bytes", [] { return pool_stats().cached_bytes; });
}

}  // namespace tulle::python
