// The registry of recipes: each preset is a row of data.
#include <fmt/format.h>

#include <array>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"
#include "tulle/gradient/recipe.hpp"

namespace tulle::gradient {
namespace {

Recipe noop() { return {.exchange = Exchange::none}; }

Recipe fp16() {
  return {.values = {.coding = ValueCoding::f16}, .coded = CodedValues::both, .row = "dense_split_allgather"};
}

// Contributions are coded and their sums again. With the norm that was published the second coding would lose several
// times as much as the first, which has made few large values of many small ones. The largest magnitude as the scale,
// as QSGD's authors use it too, keeps both together below the published bound.
Recipe qsgd() {
  return {.values = {.coding = ValueCoding::qsgd, .norm = ScaleNorm::max},
          .coded = CodedValues::both,
          .row = "dense_split_allgather"};
}

Recipe int8() {
  return {.values = {.coding = ValueCoding::int8}, .coded = CodedValues::both, .row = "dense_split_allgather"};
}

// SparCML sends tensors of fewer than 10K values whole.
constexpr std::uint64_t kSparcmlDenseBelow = 10'000;

Recipe topk() {
  return {.error_feedback = true,
          .selector = "exact_top_k",
          .dense_below = kSparcmlDenseBelow,
          .row = std::string(kAutoSparse)};
}

Recipe dgc() {
  return {.error_feedback = true,
          .momentum = 0.9,
          .masking = true,
          .selector = "sampled_top_k",
          .density = 0.001,
          .small_roles_dense = true,
          .row = std::string(kAutoSparse)};
}

// 128 KB and 4 MB of f32: RedSync's bounds at 3.5 GB/s.
constexpr std::uint64_t kRedsyncDenseBelow = 32 * 1024, kRedsyncSearchFrom = 1024 * 1024;

Recipe redsync() {
  return {.error_feedback = true,
          .momentum = 0.9,
          .masking = true,
          .selector = "trimmed_top_k",
          .density = 0.001,
          .reuse = 5,
          .search_from = kRedsyncSearchFrom,
          .dense_below = kRedsyncDenseBelow,
          .row = std::string(kAutoSparse)};
}

Recipe of_row(const char* row) { return {.error_feedback = true, .exchange = Exchange::accumulator, .row = row}; }

Recipe redsync_quantized() {
  Recipe recipe = redsync();
  recipe.reuse = 1;
  recipe.alternate_signs = true;
  recipe.values = {.coding = ValueCoding::same_sign_mean};
  recipe.exchange = Exchange::gather;
  recipe.row = "auto";
  return recipe;
}

// 3LC leaves small tensors as they are.
Recipe coded(ValueCodec values) {
  return {.error_feedback = true, .small_roles_dense = true, .values = values, .exchange = Exchange::gather};
}

Recipe three_value_stochastic() {
  Recipe recipe = coded({.coding = ValueCoding::three_value_stochastic});
  recipe.error_feedback = false;
  return recipe;
}

Recipe sparse5() {
  return {.error_feedback = true,
          .selector = "sampled_top_k",
          .density = 0.05,
          .small_roles_dense = true,
          .row = std::string(kAutoSparse)};
}

Recipe powersgd() { return {.error_feedback = true, .exchange = Exchange::low_rank}; }

// As the public training code has it: 64 of every 4096 values, 2 bits each, indices near their entropy.
Recipe sparseloco() {
  return {.error_feedback = true,
          .decay = 0.95,
          .selector = "bucketed_top_k",
          .keep = 64,
          .bucket = 4096,
          .indices = std::string(kSmallest),
          .values = {.coding = ValueCoding::codebook, .bits = 2},
          .exchange = Exchange::gather,
          .aggregate = Aggregate::mean_of_senders,
          .clipping = Clipping::median_norm,
          .every = 30,
          .outer = OuterStep::sgd};
}

Recipe local2() { return {.every = 2, .outer = OuterStep::sgd}; }

Recipe diloco() { return {.every = 50, .outer = OuterStep::nesterov, .outer_rate = 0.7, .outer_momentum = 0.9}; }

const std::array kPresets = {
    Preset{"dense", "", "everything, exactly", "row", "32", "2", "", {}},
    Preset{"noop", "", "nothing is sent: the ceiling of what any recipe can reach", "", "0", "2",
           "replicas drift apart", noop()},
    Preset{"fp16", "IEEE 754", "everything in half precision", "row", "16", "4",
           "rounding to 11 bits, what is beyond ±65504, and less than 3e-8·P", fp16()},
    Preset{"qsgd", "QSGD; SparCML 6", "everything in 2, 4 or 8 bits, rounded stochastically", "bits", "4", "4",
           "rounding, which is right on average", qsgd()},
    Preset{"int8", "3LC, Table 1", "everything in 8 bits", "", "8", "4", "rounding to 255 levels", int8()},
    Preset{"topk", "SparCML, Algorithm 1", "the largest values, the rest later; fewer than 10,000 values whole",
           "density", "0.40 at 1 %", "3", "", topk()},
    Preset{"dgc", "Deep Gradient Compression", "the largest velocities by a sampled threshold, momentum masked",
           "density", "0.044 at 0.1 %", "5", "", dgc()},
    Preset{"redsync", "RedSync, Algorithm 4",
           "the largest velocities; small layers whole, large ones by a threshold used for five steps", "density",
           "0.044 at 0.1 %", "5", "", redsync()},
    Preset{"redsync_quantized", "RedSync 5.2.3", "indices of one sign and their mean, positive and negative in turns",
           "density", "0.012 at 0.1 %", "5", "", redsync_quantized()},
    Preset{"spardl", "SparDL", "top k by block while communicating; three residual modes, teams", "density",
           "0.40 at 1 %", "3", "", of_row("spardl")},
    Preset{"oktopk", "Li and Hoefler 2022", "thresholds and regions used again, then filtered globally", "density",
           "0.40 at 1 %", "3", "", of_row("oktopk")},
    Preset{"gtopk", "Shi et al. 2019", "top k at each merge of a tree", "density", "0.40 at 1 %", "3", "",
           of_row("gtopk")},
    Preset{"three_lc", "3LC", "-M, 0 or M, five to a byte, runs of zeros in one; what rounding loses later", "s",
           "1.6 and less", "6", "", coded({.coding = ValueCoding::three_lc})},
    Preset{"three_value_stochastic", "3LC, Table 1; TernGrad", "-M, 0 or M at random, five to a byte", "", "1.6", "4",
           "rounding, which is right on average", three_value_stochastic()},
    Preset{"one_bit", "Seide et al. 2014", "a sign, and the mean of each sign in a bucket; what rounding loses later",
           "", "1.06", "6", "", coded({.coding = ValueCoding::one_bit_mqe})},
    Preset{"sparse5", "3LC, Table 1", "the largest 5 % by a sampled threshold, the rest later", "density", "2.1", "3",
           "", sparse5()},
    Preset{"powersgd", "Vogels et al. 2019", "matrices as products of two thin ones, from where the last step ended",
           "rank", "32·rank·(1/rows + 1/columns)", "8", "", powersgd()},
    Preset{"local2", "3LC, Table 1", "two local steps between exchanges", "every", "32, every 2 steps", "2",
           "the gradients of replicas that moved apart", local2()},
    Preset{"diloco", "Douillard et al. 2023", "many local steps, then an outer step with Nesterov's momentum", "every",
           "32, every 50 steps", "4", "the gradients of replicas that moved apart", diloco()},
    Preset{"sparseloco", "SparseLoCo (public training code)",
           "many local steps, then 64 of every 4096 values in 2 bits, averaged over who sent them", "every",
           "0.15, every 30 steps", "4", "what decays, and the share of ranks that did not send an index", sparseloco()},
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset& find_preset(std::string_view name) {
  std::string names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("no recipe is called '{}'; there are {}{}", name, names, did_you_mean(name, names)));
}

}  // namespace tulle::gradient
