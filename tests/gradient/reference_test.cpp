// Every preset beside a reference written from its paper: several parameters of different sizes and scales in one
// synchronizer, 50 steps that change, 1 to 4 ranks.
//
// How it works. A *step* of a parameter is what every rank had before (gradient, residual, velocity) and what it has
// after (residual, velocity, update). The reference makes the sums of the accumulate stage itself, and then says what
// the paper's selection and coding make of them. Where a paper leaves a choice, such as which of two equal values is
// selected, the reference checks what the paper says of the choice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <numeric>
#include <ostream>

#include "gradient/training.hpp"
#include "tulle/base/half.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;
using Doubles = std::vector<double>;

const std::vector<Parameter> kParameters = {{"weight", 3000, Role::hidden, 50}, {"output", 700, Role::output, 20},
                                            {"bias", 40, Role::bias_or_norm},   {"frozen", 96, Role::hidden, 8},
                                            {"tiny", 200, Role::hidden, 10},    {"huge", 300, Role::hidden, 10},
                                            {"ties", 256, Role::hidden, 16}};
constexpr std::uint64_t kSteps = 50;

double normal(Philox& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(2 * std::numbers::pi * random.uniform());
}

// The scale of a parameter's values, which changes from step to step; frozen ones have a gradient in every tenth step.
double scale_of(ParameterId id, std::uint64_t step) {
  const double scales[] = {1, 1e3, 1e-3, step % 10 == 3 ? 1.0 : 0.0, 1e-30, 1e30, 0.5};
  return scales[id] * (1 + 0.1 * static_cast<double>(step % 7));
}

Values gradient_of(int rank, std::uint64_t step, ParameterId id) {
  Philox random(step * 64 + id + 1, static_cast<std::uint64_t>(rank));
  Values values(kParameters[id].size);
  for (float& value : values) {
    const double drawn = id == 6 ? static_cast<double>(random.below(3)) - 1 : normal(random) * random.uniform();
    value = static_cast<float>(scale_of(id, step) * drawn);
  }
  return values;
}

// What all ranks have of a parameter around a step.
struct Step {
  const Recipe& recipe;
  const Parameter& parameter;
  std::uint64_t number = 0;
  int ranks = 1;
  std::vector<Values> gradient, residual_before, velocity_before;  // by rank
  std::vector<Values> residual, velocity;
  Values update;

  /// The accumulate stage: what is there before anything leaves.
  std::vector<Values> new_velocity, accumulated;

  std::string name() const { return fmt::format("{} in step {} of {} ranks", parameter.name, number, ranks); }
  std::size_t size() const { return update.size(); }
  double mean(const std::vector<Values>& of, std::size_t i) const {
    double sum = 0;
    for (const Values& values : of) sum += values[i];
    return sum / ranks;
  }
  /// Of rounding sums of these.
  double tolerance(const std::vector<Values>& of, std::size_t i) const {
    double sum = 0;
    for (const Values& values : of) sum += std::abs(values[i]);
    return 1e-6 * sum + 1e-43;
  }
};

// u ← m·u + g, v ← decay·v + u.
void accumulate(Step& step) {
  step.new_velocity = step.accumulated = step.gradient;
  const auto momentum = static_cast<float>(step.recipe.momentum), decay = static_cast<float>(step.recipe.decay);
  for (std::size_t rank = 0; rank < step.gradient.size(); ++rank) {
    for (std::size_t i = 0; i < step.size(); ++i) {
      float& u = step.new_velocity[rank][i];
      if (momentum != 0) u = momentum * step.velocity_before[rank][i] + u;
      const float v = step.recipe.error_feedback ? decay * step.residual_before[rank][i] : 0;
      step.accumulated[rank][i] = v + u;
    }
  }
}

// ---------------------------------------------------------------- what papers say

using Check = std::function<void(const Step&)>;

// Everything, as it is: the update is the mean, and nothing stays.
void whole(const Step& step) {
  for (std::size_t i = 0; i < step.size(); ++i) {
    ASSERT_NEAR(step.update[i], step.mean(step.accumulated, i), step.tolerance(step.accumulated, i))
        << step.name() << " at " << i;
  }
  for (const Values& residual : step.residual) {
    for (const float value : residual) ASSERT_EQ(value, 0) << step.name();
  }
}

// IEEE 754: rounded to the nearest, beyond 65504 cut, of each rank and of their sum; shares of 1/2ⁿ are exact.
void half_precision(const Step& step) {
  const double share = 1.0 / std::bit_ceil(static_cast<unsigned>(step.ranks));
  const auto rounded = [](double value) {
    return double{float{Half(static_cast<float>(std::clamp(value, -65504.0, 65504.0)))}};
  };
  for (std::size_t i = 0; i < step.size(); ++i) {
    double sum = 0, magnitudes = 0;
    for (const Values& values : step.gradient) {
      sum += rounded(values[i] * share);
      magnitudes += std::min(65504.0, std::abs(values[i] * share));
    }
    // A sum in f32 may round to the other side of a half.
    const double allowed = (std::abs(sum) / 2048 + 1e-6 * magnitudes + 6e-8) / (share * step.ranks);
    ASSERT_NEAR(step.update[i], rounded(sum) / (share * step.ranks), allowed) << step.name() << " at " << i;
  }
}

// QSGD, and 3LC's 8-bit integers: of `levels` to each side of a bucket's norm a value is within one, of each rank and
// of the sum.
void levels(const Step& step, bool is_l2, double levels_a_side, double steps_off) {
  // Buckets have norms of no more than the whole's.
  Doubles norms;
  for (const Values& values : step.gradient) {
    double squares = 0, largest = 0;
    for (const float value : values) {
      squares += double{value} * value;
      largest = std::max(largest, std::abs(double{value}));
    }
    norms.push_back(is_l2 ? std::sqrt(squares) : largest);
  }
  const double all = std::accumulate(norms.begin(), norms.end(), 0.0);
  // Of every rank; then the sum, whose norm has grown by as much as each of its values may be off.
  const double first = steps_off * all / levels_a_side;
  const double grown = all + first * (is_l2 ? std::sqrt(static_cast<double>(step.size())) : 1);
  const double allowed = (first + steps_off * grown / levels_a_side) / step.ranks;
  for (std::size_t i = 0; i < step.size(); ++i) {
    ASSERT_NEAR(step.update[i], step.mean(step.gradient, i), 1.001 * allowed + step.tolerance(step.gradient, i))
        << step.name() << " at " << i;
  }
}

// What ranks took out of what they had: it is whole in the update, and the rest is untouched. Gives, by rank, which
// values were taken. With masking their velocities are cleared, and no others.
std::vector<std::vector<bool>> taken_values(const Step& step) {
  std::vector<std::vector<bool>> taken;
  for (std::size_t rank = 0; rank < step.accumulated.size(); ++rank) {
    taken.emplace_back(step.size());
    for (std::size_t i = 0; i < step.size(); ++i) {
      const float had = step.accumulated[rank][i], kept = step.residual[rank][i];
      taken.back()[i] = kept == 0 && had != 0;
      if (!taken.back()[i]) {
        EXPECT_EQ(kept, had) << step.name() << " at " << i;
      }
      if (step.recipe.masking && had != 0) {
        EXPECT_EQ(step.velocity[rank][i], taken.back()[i] ? 0 : step.new_velocity[rank][i])
            << step.name() << " at " << i;
      }
    }
  }
  return taken;
}

void expect_sum_of_taken(const Step& step, const std::vector<std::vector<bool>>& taken) {
  for (std::size_t i = 0; i < step.size(); ++i) {
    double sum = 0;
    for (std::size_t rank = 0; rank < taken.size(); ++rank) sum += taken[rank][i] ? step.accumulated[rank][i] : 0;
    ASSERT_NEAR(step.update[i], sum / step.ranks, step.tolerance(step.accumulated, i)) << step.name() << " at " << i;
  }
}

// No value that stayed is larger than one that left.
void expect_largest(const Step& step, std::size_t rank, const std::vector<bool>& taken, std::size_t begin,
                    std::size_t end) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const double magnitude = std::abs(step.accumulated[rank][i]);
    taken[i] ? least = std::min(least, magnitude) : most = std::max(most, magnitude);
  }
  EXPECT_GE(least, most) << step.name() << ", rank " << rank;
}

// SparCML's Algorithm 1, DGC, RedSync's Algorithm 4: the k largest of each rank, or about as many.
void largest_values(const Step& step, double least_times_k, double most_times_k) {
  const auto taken = taken_values(step);
  expect_sum_of_taken(step, taken);
  const double k = std::ceil(step.recipe.density * static_cast<double>(step.size()));
  for (std::size_t rank = 0; rank < taken.size(); ++rank) {
    expect_largest(step, rank, taken[rank], 0, step.size());
    const auto is_nonzero = [](float value) { return value != 0; };
    const auto nonzero = static_cast<double>(std::ranges::count_if(step.accumulated[rank], is_nonzero));
    const auto count = static_cast<double>(std::ranges::count(taken[rank], true));
    EXPECT_GE(count, std::min(nonzero, std::floor(least_times_k * k))) << step.name();
    EXPECT_LE(count, std::ceil(most_times_k * k)) << step.name();
  }
}

// Rows that select while they communicate: what is not delivered is in some rank's residual.
void conserved(const Step& step, double most_times_k) {
  std::size_t delivered = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    double had = 0, has = double{step.update[i]} * step.ranks, magnitudes = std::abs(has);
    for (const Values& values : step.accumulated) {
      had += values[i];
      magnitudes += std::abs(values[i]);
    }
    for (const Values& values : step.residual) has += values[i];
    ASSERT_NEAR(has, had, 4e-6 * magnitudes + 1e-43) << step.name() << " at " << i;
    delivered += step.update[i] != 0;
  }
  const double k = std::ceil(step.recipe.density * static_cast<double>(step.size()));
  EXPECT_LE(static_cast<double>(delivered), std::max<double>(step.ranks, most_times_k * k)) << step.name();
}

// gTopk, Shi et al., Algorithm 2: top k of each rank, merged up a binomial tree with top k after each merge. `ties` may
// go either way.
void tree_of_top_k(const Step& step) {
  conserved(step, 1);
  if (step.parameter.name == "ties" || step.parameter.name == "frozen") return;
  const auto k = static_cast<std::size_t>(std::ceil(step.recipe.density * static_cast<double>(step.size())));
  const auto top = [&](Doubles values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
    for (std::size_t i = k; i < order.size(); ++i) values[order[i]] = 0;
    return values;
  };
  std::vector<Doubles> sums;
  for (const Values& values : step.accumulated) sums.push_back(top(Doubles(values.begin(), values.end())));
  for (std::size_t bit = 1; bit < sums.size(); bit *= 2) {
    for (std::size_t rank = 0; rank + bit < sums.size(); rank += 2 * bit) {
      for (std::size_t i = 0; i < step.size(); ++i) sums[rank][i] += sums[rank + bit][i];
      sums[rank] = top(sums[rank]);
    }
  }
  for (std::size_t i = 0; i < step.size(); ++i) {
    ASSERT_NEAR(step.update[i], sums[0][i] / step.ranks, step.tolerance(step.accumulated, i))
        << step.name() << " at " << i;
  }
}

// What a rank's coding gave everyone, by what it left: decoded = had − kept. The update is the mean of those.
void expect_mean_of(const Step& step, const std::vector<Doubles>& decoded) {
  for (std::size_t i = 0; i < step.size(); ++i) {
    double sum = 0;
    for (std::size_t rank = 0; rank < decoded.size(); ++rank) {
      const double had = step.accumulated[rank][i], kept = step.residual[rank][i];
      sum += decoded[rank][i];
      ASSERT_NEAR(had - kept, decoded[rank][i],
                  1e-6 * (std::abs(had) + std::abs(kept) + std::abs(decoded[rank][i])) + 1e-43)
          << step.name() << " at " << i << " of rank " << rank;
    }
    double magnitudes = 0;
    for (const Doubles& values : decoded) magnitudes += std::abs(values[i]);
    ASSERT_NEAR(step.update[i], sum / step.ranks, 1e-6 * magnitudes + 1e-43) << step.name() << " at " << i;
  }
}

// 3LC, section 3.1: M = s·max|v|, and v becomes M·round(v/M).
void three_lc(const Step& step) {
  std::vector<Doubles> decoded;
  for (const Values& values : step.accumulated) {
    float m = 0;
    for (const float value : values) m = std::max(m, std::abs(value));
    m = static_cast<float>(m * step.recipe.values.sparsity);
    decoded.emplace_back();
    for (const float value : values)
      decoded.back().push_back(std::abs(value) >= m / 2 && m > 0 ? std::copysign(m, value) : 0);
  }
  expect_mean_of(step, decoded);
}

// Seide et al.: of each bucket the mean of the values that are not negative, and that of those that are.
void one_bit(const Step& step) {
  constexpr std::size_t kBucket = 1024;
  std::vector<Doubles> decoded;
  for (const Values& values : step.accumulated) {
    decoded.emplace_back(values.size());
    for (std::size_t begin = 0; begin < values.size(); begin += kBucket) {
      const std::size_t end = std::min(values.size(), begin + kBucket);
      double sums[2] = {}, counts[2] = {};
      for (std::size_t i = begin; i < end; ++i) {
        sums[values[i] < 0] += values[i];
        counts[values[i] < 0] += 1;
      }
      for (std::size_t i = begin; i < end; ++i) decoded.back()[i] = sums[values[i] < 0] / counts[values[i] < 0];
    }
  }
  expect_mean_of(step, decoded);
}

// TernGrad: −M, 0 or M of each rank.
void three_values(const Step& step) {
  double all = 0;
  Doubles ms;
  for (const Values& values : step.gradient) {
    double m = 0;
    for (const float value : values) m = std::max(m, std::abs(double{value}));
    ms.push_back(m);
    all += m;
  }
  for (std::size_t i = 0; i < step.size(); ++i) {
    double nearest = std::numeric_limits<double>::infinity();
    const int choices = static_cast<int>(std::pow(3, step.ranks));
    for (int choice = 0; choice < choices; ++choice) {
      double sum = 0;
      for (int rank = 0, rest = choice; rank < step.ranks; ++rank, rest /= 3) {
        const float value = step.gradient[static_cast<std::size_t>(rank)][i];
        if (rest % 3 == 1) sum += std::copysign(ms[static_cast<std::size_t>(rank)], value);
      }
      nearest = std::min(nearest, std::abs(sum / step.ranks - step.update[i]));
    }
    ASSERT_LE(nearest, 1e-6 * all + 1e-43) << step.name() << " at " << i;
  }
}

// RedSync 5.2.3: values of one sign, positive in even steps, all replaced by their mean. Outputs keep their values.
void same_sign_means(const Step& step) {
  if (step.parameter.role == Role::output) return largest_values(step, 1, 2);
  const bool wants_negative = step.number % 2 == 1;
  std::vector<Doubles> decoded;
  for (std::size_t rank = 0; rank < step.accumulated.size(); ++rank) {
    const Values &had = step.accumulated[rank], &kept = step.residual[rank];
    double sum = 0, least = std::numeric_limits<double>::infinity(), most = 0;
    std::size_t count = 0;
    std::vector<bool> taken(step.size());
    for (std::size_t i = 0; i < step.size(); ++i) {
      taken[i] = kept[i] != had[i];
      if (had[i] == 0 || (had[i] < 0) != wants_negative) {
        ASSERT_FALSE(taken[i]) << step.name() << ": a value of the other sign left";
        continue;
      }
      // With masking a value that left has lost its velocity, even where it is its own mean.
      if (step.velocity[rank][i] == 0 && step.new_velocity[rank][i] != 0) taken[i] = true;
      const double magnitude = std::abs(double{had[i]});
      taken[i] ? least = std::min(least, magnitude) : most = std::max(most, magnitude);
      sum += taken[i] ? had[i] : 0;
      count += taken[i];
    }
    EXPECT_GE(least, most) << step.name();
    decoded.emplace_back(step.size());
    for (std::size_t i = 0; i < step.size(); ++i) decoded.back()[i] = taken[i] ? sum / static_cast<double>(count) : 0;
  }
  expect_mean_of(step, decoded);
}

// Vogels et al., Algorithms 1 and 2: the update is the mean's projection on 4 columns, and each rank keeps its own less
// the update.
void low_rank(const Step& step) {
  double dot = 0, squares = 0, update_squares = 0, noise = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const double mean = step.mean(step.accumulated, i), update = step.update[i];
    ASSERT_TRUE(std::isfinite(update)) << step.name();
    noise += step.tolerance(step.accumulated, i) * step.tolerance(step.accumulated, i);
    dot += (mean - update) * update;
    squares += mean * mean;
    update_squares += update * update;
    for (std::size_t rank = 0; rank < step.residual.size(); ++rank) {
      const double had = step.accumulated[rank][i];
      ASSERT_NEAR(step.residual[rank][i], had - update, 1e-5 * (std::abs(had) + std::abs(update)) + 1e-43)
          << step.name();
    }
  }
  // Where the matrices of ranks cancel, their mean is known up to the rounding of those.
  const double rounding = 10 * std::sqrt(noise) * (std::sqrt(squares) + std::sqrt(update_squares));
  EXPECT_LE(std::abs(dot), 1e-4 * squares + rounding)
      << step.name() << ": what is left is not orthogonal to what was delivered";
  EXPECT_LE(update_squares, 1.0001 * squares + rounding) << step.name();
  // Of rank 4 at most: after 4 steps of elimination with the largest pivot nothing is left.
  const std::size_t rows = step.parameter.rows, columns = step.size() / rows;
  Doubles matrix(step.update.begin(), step.update.end());
  double largest = 0;
  for (const double value : matrix) largest = std::max(largest, std::abs(value));
  for (std::uint64_t round = 0; round < step.recipe.rank && largest > 0; ++round) {
    const auto is_smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
    const auto pivot = static_cast<std::size_t>(std::ranges::max_element(matrix, is_smaller) - matrix.begin());
    const Doubles before = matrix;
    if (before[pivot] == 0) break;
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] -= before[i / columns * columns + pivot % columns] / before[pivot] *
                   before[pivot / columns * columns + i % columns];
    }
  }
  for (const double value : matrix)
    ASSERT_LE(std::abs(value), 1e-4 * largest) << step.name() << ": more than 4 columns";
}

// Douillard et al.: m ← μ·m + Δ, and the outer step is rate·(Δ + μ·m).
Check nesterov() {
  struct Outer {
    Doubles momentum, tolerance;
  };
  const auto kept = std::make_shared<std::map<std::string, Outer>>();
  return [kept](const Step& step) {
    Outer& outer = (*kept)[step.parameter.name];
    if (step.number == 0) outer.momentum = outer.tolerance = Doubles(step.size());
    const double mu = step.recipe.outer_momentum;
    for (std::size_t i = 0; i < step.size(); ++i) {
      const double mean = step.mean(step.gradient, i);
      outer.momentum[i] = mu * outer.momentum[i] + mean;
      outer.tolerance[i] = mu * outer.tolerance[i] + step.tolerance(step.gradient, i);
      const double expected = step.recipe.outer_rate * (mean + mu * outer.momentum[i]);
      ASSERT_NEAR(step.update[i], expected, outer.tolerance[i]) << step.name() << " at " << i;
    }
  };
}

// SparseLoCo's training code: at most 64 of every 4096 values, coded; those of a norm above the median scaled down to
// it; the mean over the ranks that sent the index.
void mean_of_those_that_sent(const Step& step) {
  std::vector<Doubles> decoded;
  std::vector<std::vector<bool>> sent;
  Doubles norms;
  for (std::size_t rank = 0; rank < step.accumulated.size(); ++rank) {
    const Values &had = step.accumulated[rank], &kept = step.residual[rank];
    decoded.emplace_back(step.size());
    sent.emplace_back(step.size());
    double squares = 0;
    for (std::size_t i = 0; i < step.size(); ++i) {
      sent.back()[i] = had[i] != kept[i];
      decoded.back()[i] = double{had[i]} - kept[i];
      squares += decoded.back()[i] * decoded.back()[i];
    }
    EXPECT_LE(std::ranges::count(sent.back(), true), 64) << step.name();
    expect_largest(step, rank, sent.back(), 0, step.size());
    norms.push_back(std::sqrt(squares));
  }
  Doubles sorted;  // of those that sent something
  std::ranges::copy_if(norms, std::back_inserter(sorted), [](double norm) { return norm > 0; });
  std::ranges::sort(sorted);
  const double median = sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2];
  for (std::size_t i = 0; i < step.size(); ++i) {
    double sum = 0, magnitudes = 0;
    int senders = 0;
    for (std::size_t rank = 0; rank < decoded.size(); ++rank) {
      sum += norms[rank] > median ? decoded[rank][i] * median / norms[rank] : decoded[rank][i];
      magnitudes += std::abs(step.accumulated[rank][i]);
      senders += sent[rank][i];
    }
    // What was decoded is known up to the rounding of what was kept.
    ASSERT_NEAR(step.update[i], senders == 0 ? 0 : sum / senders, 1e-5 * magnitudes + 1e-43)
        << step.name() << " at " << i;
  }
}

// ---------------------------------------------------------------- training

// Visits every parameter of every step of a training.
void follow(const Recipe& recipe, int ranks, const std::function<void(Step&)>& visit) {
  const std::size_t parameters = kParameters.size();
  std::vector<std::vector<std::vector<std::array<Values, 3>>>> seen(  // residual, velocity, update
      kSteps, std::vector(parameters, std::vector<std::array<Values, 3>>(static_cast<std::size_t>(ranks))));
  const Program program = [&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    Task<Synchronizer> making = Synchronizer::await_make(communicator, kParameters, recipe, {.reproducible = true});
    Synchronizer synchronizer = co_await making;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      for (ParameterId id = 0; id < parameters; ++id) {
        const Values gradient = gradient_of(communicator.rank(), step, id);
        synchronizer.start(id, std::span<const float>(gradient));
      }
      synchronizer.end_step();
      for (ParameterId id = 0; id < parameters; ++id) {
        auto& [residual, velocity, update] = seen[step][id][rank];
        update.resize(kParameters[id].size);
        Task<bool> finishing = synchronizer.await_finish_into(id, update);
        co_await finishing;
        residual = copy_of(synchronizer.residual(id));
        velocity = copy_of(synchronizer.momentum(id));
      }
    }
  };
  SimWorld world({.ranks = ranks});
  for (const std::exception_ptr& error : world.try_run(program)) ASSERT_EQ(message_of(error), "");
  for (std::uint64_t number = 0; number < kSteps; ++number) {
    for (ParameterId id = 0; id < parameters; ++id) {
      Step step{.recipe = recipe, .parameter = kParameters[id], .number = number, .ranks = ranks};
      const Values zeros(kParameters[id].size);
      step.update = seen[number][id][0][2];
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        const auto before = [&](std::size_t array) {
          return number == 0 || seen[number - 1][id][rank][array].empty() ? zeros : seen[number - 1][id][rank][array];
        };
        step.gradient.push_back(gradient_of(static_cast<int>(rank), number, id));
        step.residual_before.push_back(before(0));
        step.velocity_before.push_back(before(1));
        step.residual.push_back(seen[number][id][rank][0]);
        step.velocity.push_back(seen[number][id][rank][1]);
        ASSERT_EQ(seen[number][id][rank][2], step.update) << step.name() << ": replicas differ";
      }
      accumulate(step);
      visit(step);
      if (::testing::Test::HasFailure()) return;  // one step tells enough
    }
  }
}

struct Reference {
  const char* recipe;
  Check check;
};
void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.recipe; }

// Of presets as they are, and with everything selected or coded, also what is small.
const std::vector<Reference> kReferences = {
    {"dense", whole},
    {"dense|momentum:0.9", whole},
    {"fp16", half_precision},
    {"qsgd", [](const Step& step) { levels(step, true, 7, 1); }},
    {"qsgd:8", [](const Step& step) { levels(step, true, 127, 1); }},
    {"int8", [](const Step& step) { levels(step, false, 127, 0.5); }},
    {"topk", whole},  // all are smaller than dense_below
    {"topk:1%|dense_below:0", [](const Step& step) { largest_values(step, 1, 1); }},
    {"topk:5%|dense_below:0|selector:trimmed_top_k", [](const Step& step) { largest_values(step, 1, 1); }},
    {"dgc:5%", [](const Step& step) { largest_values(step, 0.25, 4); }},
    {"redsync:5%|dense_below:0", [](const Step& step) { largest_values(step, 0.5, 4); }},
    {"redsync:5%|dense_below:0|search_from:500", [](const Step& step) { largest_values(step, 0.5, 4); }},
    {"redsync_quantized:5%|dense_below:0", same_sign_means},
    {"sparse5", [](const Step& step) { largest_values(step, 0.25, 4); }},
    {"spardl:5%", [](const Step& step) { conserved(step, 1); }},
    {"oktopk:5%", [](const Step& step) { conserved(step, 1); }},
    {"gtopk:5%", tree_of_top_k},
    {"dense|row:topka|density:5%", [](const Step& step) { largest_values(step, 1, 1); }},
    {"dense|row:topkdsa|density:5%", [](const Step& step) { conserved(step, 4); }},
    {"three_lc", three_lc},
    {"three_lc:1.75", three_lc},
    {"one_bit", one_bit},
    {"three_value_stochastic", three_values},
    {"powersgd", low_rank},
    {"local2", whole},
    {"diloco", nesterov()},
    {"sparseloco", mean_of_those_that_sent},
};

class AgainstItsPaper : public ::testing::TestWithParam<Reference> {};

bool is_whole(const Recipe& recipe, const Parameter& parameter) {
  if (parameter.size < recipe.dense_below) return true;
  if (recipe.small_roles_dense && parameter.role == Role::bias_or_norm) return true;
  return recipe.exchange == Exchange::low_rank && parameter.rows == 0;
}

TEST_P(AgainstItsPaper, DoesInEveryStepWhatTheReferenceDoes) {
  const Recipe recipe = parse_recipe(GetParam().recipe);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    follow(recipe, ranks, [&](Step& step) { (is_whole(recipe, step.parameter) ? whole : GetParam().check)(step); });
    if (HasFailure()) return;
  }
}

std::string name_of(const std::string& recipe) {
  std::string name = recipe;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Recipes, AgainstItsPaper, ::testing::ValuesIn(kReferences),
                         [](const auto& row) { return name_of(row.param.recipe); });

}  // namespace
}  // namespace tulle::gradient
