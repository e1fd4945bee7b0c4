// What a trainer holds: it takes the gradients of named parameters and gives back the update that all ranks apply.
//
// A step is: start() for every parameter, in any order and on every rank in another one, as back-propagation produces
// them; then finish() for each. What a recipe does not deliver stays with the parameter, in one accumulator, and is
// part of a later step. docs/gradient.md explains the stages and the state.
//
//   auto synchronizer = tulle::gradient::Synchronizer::make(communicator, {{"weight", 4096}, {"bias", 64}},
//                                                           tulle::gradient::parse_recipe("topk:1%"));
//   synchronizer.start(1, bias_gradient);            // returns at once; the gradient may be overwritten
//   synchronizer.start(0, weight_gradient);
//   synchronizer.end_step();                         // what was not started has no gradient in this step
//   synchronizer.finish_into(0, weight_gradient);    // the mean over ranks, as far as it was delivered
//   synchronizer.finish_into(1, bias_gradient);
//
// Threads: one at a time. Programs (coroutines) use the functions that begin with `await`, which give tasks.
// Failure: an error of a collective breaks the communicator, as docs/errors.md says; what was taken out of an
// accumulator is back in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tulle/base/half.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/gradient/recipe.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle::gradient {

/// What a parameter is for; some recipes treat roles apart.
enum class Role : std::uint8_t {
  hidden,
  output,        ///< the last layer: its values are never replaced by one mean
  small,         ///< sent whole by recipes that say so
  bias_or_norm,  ///< the same
};
std::string_view to_string(Role role);

struct Parameter {
  std::string name = {};
  std::uint64_t size = 0;  ///< values
  Role role = Role::hidden;
  std::uint64_t rows = 0;  ///< of a matrix, stored row after row, for recipes that see one; 0: it is none
};

/// A parameter's place in the list that was registered.
using ParameterId = std::uint32_t;

/// What happens to a gradient that has NaN or infinity. It never becomes part of a residual.
enum class NonFinitePolicy : std::uint8_t {
  error,  ///< bad_input that names parameter and index; the other ranks are told
  skip,   ///< all ranks drop what would be delivered for the parameter in this step; finite gradients stay as residual
};

/// Where the boundaries between small, middle and large layers come from.
enum class Boundaries : std::uint8_t {
  recipe,    ///< its dense_below and search_from
  measured,  ///< RedSync's equations with what selecting takes on these machines and the communicator's profile
};

/// Equal on all ranks.
struct SynchronizerOptions {
  NonFinitePolicy non_finite = NonFinitePolicy::error;
  std::uint64_t seed = 0;  ///< of everything random
  /// Of the communicator. Those up to Synchronizer::end_channel() are taken: one for each parameter and each group, and
  /// three more. make() refuses them while another synchronizer has some of them.
  std::uint32_t first_channel = 1;
  /// Parameters that have fewer values than this travel together, where they travel whole or as selections that are
  /// summed; 0: each by itself. A group is sent when all its members are there, so that end_step() comes before
  /// finish().
  std::uint64_t fuse_below = 16'384;
  std::uint64_t fuse_values = 262'144;  ///< of a group; larger ones start later, smaller ones are more messages
  int threads = 1;                      ///< of selecting; 0: all that there are
  Boundaries boundaries = Boundaries::recipe;
  /// Rows are chosen by options alone, and so is what `adaptive` sends whole; never by what steps took. `energy` then
  /// looks at gradients and not at the clock.
  bool reproducible = false;
  /// Every so many steps (2 at least) ranks compare a checksum of the updates that they were given; 0: never. Where
  /// they differ all throw mismatch naming the first parameter, from a finish() of the step after.
  std::uint64_t replica_check_every = 0;
  /// Every so many steps, from the first on, a trainer shall give a hash of its weights to compare_weights(); 0: never.
  std::uint64_t weights_check_every = 0;
  bool residual_norms = false;  ///< ParameterStats::residual_norm: one more pass over each accumulator
  double deadline_seconds = 0;  ///< of each exchange; 0: the communicator's default
  /// Keeps what was there before each of the last two steps, so that move_to() can undo them: one more pass over what a
  /// step changes, and twice its memory. A step then begins when all parameters of the one before are finished.
  bool undo = false;
  /// Simulations: gradients have sizes and no values, and start_phantom() takes the place of start(). Nothing is
  /// stored, so that a network of any size fits as many ranks as there shall be.
  bool phantoms = false;
};

/// What a rank has said of what it holds back.
struct KnownResidual {
  double norm = 0;         ///< L2, of all parameters
  std::uint64_t step = 0;  ///< after which it was so large
};

/// What finish() gives. The same bits on all ranks, except with exchange none.
struct Update {
  AnyStream stream;         ///< f32, sparse or dense
  bool is_skipped = false;  ///< a rank's gradient was not finite: the stream is empty, on all ranks
};

/// How a parameter travels.
struct PlanRow {
  std::string parameter;
  std::uint64_t size = 0;
  std::string how;       ///< dense, nowhere, a selector's or a row's name, or the value coding where all values travel
  double density = 1;    ///< of what a rank sends
  std::string together;  ///< the first member of the group that it travels with; empty: it travels by itself
  std::string reason;
};

/// What the last step of a parameter did on this rank. Times of computing are the processor's; those that begin or end
/// an exchange are on the transport's clock, which is a virtual one in simulation.
struct ParameterStats {
  std::uint64_t step = 0;       ///< of the parameter, from 1
  std::string_view route = "";  ///< how it travelled: dense, selected, accumulator, gathered, low_rank or nowhere
  std::uint64_t taken = 0;      ///< values that left this rank
  std::uint64_t delivered = 0;  ///< values of the update
  double out_of_teams = 0;      ///< values before spardl's teams select for the last time, SparDL's N_t; else 0
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;  ///< of indices and values
  double gradient_norm = 0;          ///< L2, of the gradient that was given
  double residual_norm = 0;          ///< of what stayed; 0 unless the options ask for it
  double accumulate_seconds = 0;
  double select_seconds = 0;
  double exchange_seconds = 0;  ///< from the start of the exchange to its end, as this rank saw it
  double wait_seconds = 0;      ///< of that, what finish() waited for
  double apply_seconds = 0;     ///< scaling, outer step, what was not delivered back into the accumulator
  double mask_seconds = 0;      ///< of momentum, where values left
  double encode_seconds = 0;    ///< of the exchange, what coding frames took here
  double decode_seconds = 0;
  double begin_seconds = 0;  ///< when start() or skip() was called
  double exchange_begin_seconds = 0;
  double wait_begin_seconds = 0;  ///< when finish() was called
  double exchange_end_seconds = 0;
};

/// Where states are written.
enum class CheckpointFiles : std::uint8_t {
  one_per_rank,  ///< PATH.RANK-of-RANKS: for directories that ranks need not share when they come back
  one_for_all,   ///< PATH, which all ranks write to, and must see
};

/// Writes `bytes` at `offset` of a file that is there, and returns when they are on the disk. For one_for_all: empty is
/// plain writing, write_mpi_file() of tulle/comm/mpi_file.hpp is MPI-IO.
using WritePart = std::function<void(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes)>;

/// A line of JSON: the parameter's name and every field of its stats.
std::string to_json(const Parameter& parameter, const ParameterStats& stats);

class Synchronizer {
 public:
  /// Registers parameters. Collective: ranks compare names, sizes, roles, recipe and options, and where they differ all
  /// throw mismatch naming the first parameter that does. Throws bad_input for a recipe that is not valid, for names
  /// that are empty or not unique, for numbers of parameters that the channels have no room for, and where a
  /// synchronizer of the same communicator that is not gone has some of the channels on any rank. Memory: one f32 a
  /// value, and one more each for momentum and for the outer step's momentum.
  static Synchronizer make(Communicator communicator, std::vector<Parameter> parameters, const Recipe& recipe,
                           const SynchronizerOptions& options = {});
  static Task<Synchronizer> await_make(Communicator communicator, std::vector<Parameter> parameters, Recipe recipe,
                                       SynchronizerOptions options = {});
  Synchronizer(Synchronizer&&) noexcept;
  Synchronizer& operator=(Synchronizer&&) noexcept;
  /// Exchanges in flight that use its memory are ended, which breaks the communicator; the others go on by themselves.
  ~Synchronizer();

  std::span<const Parameter> parameters() const;
  const Recipe& recipe() const;
  const Communicator& communicator() const;
  /// The steps that have ended: how often end_step() was called.
  std::uint64_t steps() const;
  /// The steps that are over on this rank, because every parameter was finished. REQUIRES: steps do not overlap, which
  /// `undo` makes sure of.
  std::uint64_t completed_steps() const;
  /// Whether the options say `undo`.
  bool can_undo() const;
  /// The first channel after its own, for whatever else uses the communicator: `first_channel` of the next
  /// synchronizer.
  std::uint32_t end_channel() const;

  /// Accumulates, selects and starts the exchange. The gradient may be overwritten when this returns. `weights` are for
  /// recipes with weight_decay. Throws bad_input where sizes differ or where the parameter is in flight already, and by
  /// policy where a value is not finite. Costs what docs/recipes.md counts for the recipe, up to the exchange.
  void start(ParameterId parameter, std::span<const float> gradient, std::span<const float> weights = {});
  /// 16-bit gradients are accumulated in f32.
  void start(ParameterId parameter, std::span<const Half> gradient, std::span<const float> weights = {});
  void start(ParameterId parameter, std::span<const Bfloat16> gradient, std::span<const float> weights = {});
  /// The same of a gradient that is lent: where a recipe would only copy it, it travels from where it is.
  /// REQUIRES: it stays where and as it is until finish() of the parameter has returned, which may write the update
  /// there; where that throws, until the synchronizer is gone.
  void start_lent(ParameterId parameter, std::span<const float> gradient, std::span<const float> weights = {});
  /// The same of a gradient that is not there: what travels has the size that it would have on average, and so has the
  /// update. Selecting takes no time. Throws bad_input without `phantoms`. REQUIRES: called on all ranks, in
  /// simulation.
  void start_phantom(ParameterId parameter);
  /// This rank has no gradient for the parameter in this step: it contributes nothing and keeps its residual. It must
  /// still finish() it, because other ranks may have contributed.
  void skip(ParameterId parameter);
  /// Skips what was not started; from here on every parameter can be finished. REQUIRES: called once a step.
  void end_step();

  /// True when finish() would not wait. Makes some progress.
  bool test(ParameterId parameter);
  /// The update of the parameter. Throws the exchange's error. REQUIRES: it was started or skipped.
  Update finish(ParameterId parameter);
  Task<Update> await_finish(ParameterId parameter);
  /// The same, written to all of `update`: zeros where nothing was delivered. Gives false where the step was skipped.
  bool finish_into(ParameterId parameter, std::span<float> update);
  Task<bool> await_finish_into(ParameterId parameter, std::span<float> update);

  /// A whole step: starts all, in the order of registration, and replaces each gradient by its update. An empty span is
  /// a parameter without a gradient: it is skipped and its update dropped.
  void step(std::span<const std::span<float>> gradients);
  Task<> await_step(std::span<const std::span<float>> gradients);

  /// Whether the step that is ended next is one of every `weights_check_every`.
  bool wants_weights() const;
  /// Compares the weights of all ranks by a hash of each parameter's, in the order of registration. The trainer chooses
  /// the hash, such as crc32c(), and may compute it where the weights live. Starts a message of 4 bytes a rank and
  /// returns at once. Where hashes differ, the first finish() after the next end_step() throws on all ranks a mismatch
  /// that names a parameter and the ranks with each hash; the communicator stays usable. Throws bad_input where the
  /// number of hashes is not that of the parameters. REQUIRES: called on all ranks in the same step, once every update
  /// of the step before was applied to the weights and none of this step.
  void compare_weights(std::span<const std::uint64_t> hashes);

  /// Counts a local step. True where an exchange is due: after every `recipe().every` of them. Trainers with local
  /// steps then start() with Δ = θ_before − θ_now and set θ to θ_before − update.
  bool count_local_step();

  /// What this rank keeps between steps, as bytes: residuals, momenta, thresholds, what algorithms learned, the numbers
  /// of steps that dice are drawn from. Parameters go by name. Versioned and checksummed; docs/gradient.md has the
  /// layout. A run that loads it goes on bit for bit (with `reproducible`, where rows are chosen by time). Costs a
  /// copy. Throws bad_input while a parameter is in flight, as load_state() does.
  Buffer save_state() const;
  /// Goes on from what was saved. `states` are this rank's own, saved on as many ranks as there are now, or those of
  /// all ranks, in order. On another number of ranks P' this rank takes the sums of old ranks i with i mod P' = rank,
  /// scaled by P'/P where the aggregate is a mean, so that nothing that is pending is lost or grows. Throws bad_input
  /// where a state is damaged, of other parameters or of a recipe that keeps something else; then nothing has changed.
  /// Not collective: where it may fail on some ranks only, use load_checkpoint().
  void load_state(std::span<const Buffer> states);

  /// The same to and from files. Collective: where a rank fails all throw, and files and states are what they were.
  /// A file appears whole or not at all; what was there stays beside it, with .before at its end.
  void save_checkpoint(const std::string& path, CheckpointFiles files = CheckpointFiles::one_per_rank,
                       const WritePart& write = {});
  Task<> await_save_checkpoint(std::string path, CheckpointFiles files = CheckpointFiles::one_per_rank,
                               WritePart write = {});
  /// Finds either kind of files, of any number of ranks: the newest step of one run of which all ranks have an intact
  /// file. Gives the reason where newer files are left out, and an empty text where there are none. Throws bad_input
  /// where nothing is there, nothing fits, or there is more than one kind.
  std::string load_checkpoint(const std::string& path);
  Task<std::string> await_load_checkpoint(std::string path);

  /// What is kept between steps. Empty where the recipe keeps none. REQUIRES: the parameter is not in flight.
  std::span<const float> residual(ParameterId parameter) const;
  std::span<const float> momentum(ParameterId parameter) const;
  std::span<const float> outer_momentum(ParameterId parameter) const;

  const ParameterStats& stats(ParameterId parameter) const;
  /// What is known here of another rank's residual. Norms travel with the checks of replicas, and nowhere else: nothing
  /// unless the options have both `replica_check_every` and `residual_norms`, and before the first check.
  std::optional<KnownResidual> known_residual(int rank) const;

  /// Goes on with the ranks of another communicator, such as shrink() and admit() give, from the end of a step: as many
  /// as `completed_steps` are kept, and what was begun or finished after them is undone, also what is in flight.
  /// Residuals, momenta, thresholds and dice stay this rank's; means are over the new ranks. Where there are more of
  /// them than before, what is pending is scaled by P'/P if the aggregate is a mean, so that newcomers who hold nothing
  /// do not make it less, and what algorithms learned starts anew, as with the newcomers; where there are fewer it
  /// stays: the mean of those who are left stands for the mean of all. What the dead held is gone. A recipe's teams
  /// that the new ranks cannot make become the largest number below that they can. Collective in the sense that all
  /// ranks of `communicator` have to do it, with the same number; nothing is sent. Throws bad_input where that many
  /// steps are not completed or no longer kept, or where something would be undone and the options do not say `undo`;
  /// then nothing has changed.
  void move_to(Communicator communicator, std::uint64_t completed_steps);
  Task<> await_move_to(Communicator communicator, std::uint64_t completed_steps);

  /// How a rank that has come later gets what all ranks have in common. Both are collective on `grown`, whose first
  /// ranks are old ones and call await_welcome(); the others call await_join(), which is make() for them. They compare
  /// what they registered, as in make(), and rank 0 sends the newcomers what it keeps, checked by CRC; their residuals
  /// and momenta are 0. The old ranks then move_to(grown). Throws bad_input on all while a parameter is in flight, and
  /// unsupported with Boundaries::measured, which newcomers cannot measure again.
  Task<> await_welcome(Communicator grown, int newcomers);
  static Task<Synchronizer> await_join(Communicator grown, int newcomers, std::vector<Parameter> parameters,
                                       Recipe recipe, SynchronizerOptions options = {});

  /// What all steps so far cost, on one screen: bytes, ratio to dense, time by stage, exposed waiting, the slowest
  /// rank, what dense exchanges would have taken, and what was decided about layers and why. Collective; the same text
  /// on all ranks.
  std::string report();
  Task<std::string> await_report();

  /// How each parameter travels once warm-up is over, and why: the same on all ranks.
  std::vector<PlanRow> plan() const;
  /// The same as a table to print, with RedSync's boundaries beside those in use.
  std::string plan_text() const;

 private:
  struct State;
  explicit Synchronizer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tulle::gradient
#pragma GCC visibility pop
