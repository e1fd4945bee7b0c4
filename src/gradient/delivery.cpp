// The second half of a pipeline: what an exchange gave becomes an update, and what it left becomes the residual.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/timed.hpp"
#include "gradient/pipeline.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::gradient {

Task<> Pipeline::await_exchange() {
  outcome_ = {};
  contributions_ = {};
  if (is_together_) {
    Task<AnyStream> sum = group_->sum_of(member_);
    outcome_.stream = co_await sum;
    outcome_.counts = group_->counts_of(member_);
  }
  if (request_.valid()) outcome_ = co_await request_;
  if (gathering_.valid()) contributions_ = co_await gathering_;
  if (route_ == Route::low_rank) {
    Task<> sums = low_rank_->finish();
    co_await sums;
    outcome_.counts = low_rank_->counts();
  }
  if (void_flag_.valid()) {
    const std::vector<double> flag = co_await void_flag_;
    is_void_ = flag.front() > 0;
  }
  const Counts& counts = route_ == Route::gathered ? contributions_.counts : outcome_.counts;
  stats_.bytes_sent = counts.bytes_sent;
  stats_.bytes_received = counts.data_bytes_received;
  stats_.encode_seconds = counts.encode_seconds;
  stats_.decode_seconds = counts.decode_seconds;
}

Task<Delivery> Pipeline::end_exchange() {
  if (!is_in_flight_) {
    throw Error(ErrorKind::bad_input, fmt::format("{} was neither started nor skipped", parameter_.name));
  }
  if (is_together_) group_->require_started(member_);
  stats_.wait_begin_seconds = clock_seconds();
  try {
    Task<> exchange = await_exchange();
    co_await exchange;
  } catch (...) {
    is_in_flight_ = false;
    give_back();
    throw;
  }
  is_in_flight_ = false;
  stats_.exchange_end_seconds = clock_seconds();
  stats_.wait_seconds = stats_.exchange_end_seconds - stats_.wait_begin_seconds;
  stats_.exchange_seconds = stats_.exchange_end_seconds - stats_.exchange_begin_seconds;
  const Delivery delivery = timed(stats_.apply_seconds, [&] { return deliver(); });
  stats_.apply_seconds -= stats_.mask_seconds;
  co_return delivery;
}

Task<Update> Pipeline::finish() {
  Task<Delivery> exchange = end_exchange();
  const Delivery delivery = co_await exchange;
  Update update{delivery.sum, delivery.is_skipped};
  if (delivery.is_skipped || delivery.sum.is_phantom()) co_return update;
  // What a rank that is alone sent may still be its accumulator.
  const auto step_out = [&] { return outer_step(common_.recipe, delivery.sum, delivery.divisor, outer_).to_owned(); };
  update.stream = timed(stats_.apply_seconds, step_out);
  if (has_non_finite(update.stream)) refuse_update(update.stream);
  co_return update;
}

Task<bool> Pipeline::finish_into(std::span<float> out) {
  require_size(out.size());
  Task<Delivery> exchange = end_exchange();
  const Delivery delivery = co_await exchange;
  const auto write = [&] {
    const ArrayWriter writer(common_.values);
    if (delivery.is_skipped) return write_dense(delivery.sum, 1, out, writer);
    if (is_own(delivery)) {
      writer.copy(delivery.sum.values_buffer().as<float>().data(), out.data(), out.size());
      return true;
    }
    return outer_step_into(common_.recipe, delivery.sum, delivery.divisor, outer_, out, writer);
  };
  if (!timed(stats_.apply_seconds, write)) refuse_update(whole(out));
  co_return !delivery.is_skipped;
}

// A rank that is alone is given what it sent, which is finite.
bool Pipeline::is_own(const Delivery& delivery) const {
  const Recipe& recipe = common_.recipe;
  const bool is_plain = recipe.outer == OuterStep::none || (recipe.outer == OuterStep::sgd && recipe.outer_rate == 1);
  return common_.ranks == 1 && is_plain && delivery.sum.is_dense() && delivery.divisor == 1;
}

// All ranks were given the same and refuse it alike.
void Pipeline::refuse_update(const AnyStream& update) {
  const std::span<const float> values = update.values_buffer().as<float>();
  const auto is_beyond = [](float value) { return !std::isfinite(value); };
  const auto place = static_cast<std::size_t>(std::ranges::find_if(values, is_beyond) - values.begin());
  refuse_together(
      fmt::format("{}: the update is {} at index {}, in step {}: {} outgrew f32; lower the learning rate or "
                  "clip the gradients",
                  parameter_.name, values[place], update.is_dense() ? place : update.index_at(place), stats_.step,
                  outer_.empty() ? "a sum over ranks" : "a sum over ranks or the outer momentum"));
}

// A sum of selections may be dense in form. Then it delivers the values that are not zero; of a phantom no more than
// ranks took.
std::uint64_t Pipeline::delivered_values(const AnyStream& sum) const {
  const bool selects = route_ == Route::selected || route_ == Route::accumulator ||
                       (route_ == Route::gathered && common_.recipe.selector != "none");
  if (!selects || !sum.is_dense()) return sum.nnz();
  const std::uint64_t most = stats_.taken * static_cast<std::uint64_t>(common_.ranks);
  return sum.is_phantom() ? std::min(sum.nnz(), most) : count_nonzero(sum.values_buffer().as<float>());
}

// An exchange that failed, or a step that is void: what was taken out comes back.
void Pipeline::give_back() {
  if (taken_.nnz() > 0 && common_.recipe.error_feedback) put_back(accumulator_, taken_);
  if (is_void_ && contributes_ && route_ == Route::accumulator) std::ranges::copy(before_, accumulator_.begin());
  taken_ = {};
}

Delivery Pipeline::deliver() {
  const AnyStream nothing = AnyStream::empty(ValueType::f32, parameter_.size);
  if (is_void_) return void_delivery();
  if (route_ == Route::nowhere) {
    const AnyStream own = contributes_ ? whole_accumulator() : nothing;
    note_checksum(own);
    return {.sum = own};
  }
  Delivery delivery{.sum = aggregated(), .divisor = divisor()};
  if (common_.options.non_finite == NonFinitePolicy::skip && has_non_finite(delivery.sum)) {
    is_void_ = true;
    return void_delivery();
  }
  stats_.delivered = delivered_values(delivery.sum);
  if (route_ == Route::accumulator) stats_.out_of_teams = learned_->sparse.team_gather.came_out;
  settle();
  note_checksum(delivery.sum);
  if (common_.options.residual_norms) stats_.residual_norm = inspect(residual()).norm;
  outcome_ = {};
  contributions_ = {};
  return delivery;
}

Delivery Pipeline::void_delivery() {
  const AnyStream nothing = AnyStream::empty(ValueType::f32, parameter_.size);
  give_back();
  note_checksum(nothing);
  outcome_ = {};
  contributions_ = {};
  return {.sum = nothing, .is_skipped = true};
}

// Replicas that were given the same updates have the same checksum, whatever happened to them in between.
void Pipeline::note_checksum(const AnyStream& sum) {
  if (common_.options.replica_check_every == 0) return;
  std::uint32_t before = checksums_[delivered_steps_ % 2];
  if (!outer_.empty()) before = crc32c(std::as_bytes(outer_), before);  // which is a part of the update
  delivered_steps_ += 1;
  checksums_[delivered_steps_ % 2] = crc32c(sum.values_buffer().bytes(), crc32c(sum.indices_buffer().bytes(), before));
}

AnyStream Pipeline::aggregated() {
  if (route_ == Route::low_rank) {
    const Range all{0, parameter_.size};
    if (common_.options.phantoms) {
      return AnyStream::phantom(ValueType::f32, parameter_.size, all, Layout::dense, parameter_.size);
    }
    Buffer product = Buffer::allocate(parameter_.size * sizeof(float));
    low_rank_->expand_to(product.as_mutable<float>());
    return AnyStream::dense(ValueType::f32, parameter_.size, all, std::move(product));
  }
  // A rank that is alone is given its own memory, which a residual is about to overwrite.
  if (route_ != Route::gathered) return common_.recipe.error_feedback ? outcome_.stream.to_owned() : outcome_.stream;
  if (common_.recipe.aggregate == Aggregate::mean_of_senders) {
    return mean_of_senders(contributions_, common_.recipe.clipping);
  }
  PoolVector<AnyStream> streams;
  for (const Contribution& contribution : contributions_.by_rank) streams.push_back(contribution.stream);
  return reduce_many(streams, Op::sum());
}

// A parameter that travels dense has all ranks as its senders. Thin matrices give the mean. Where shares travelled,
// their sum is so much smaller.
float Pipeline::divisor() const {
  const Aggregate aggregate = common_.recipe.aggregate;
  if (route_ == Route::low_rank) return aggregate == Aggregate::sum ? 1 / static_cast<float>(common_.ranks) : 1;
  const bool is_mean = aggregate == Aggregate::mean || (aggregate != Aggregate::sum && route_ != Route::gathered);
  return static_cast<float>(is_mean ? common_.ranks : 1) * sent_share();
}

// The accumulator is left with what was not delivered.
void Pipeline::settle() {
  if (common_.options.phantoms) return;
  if (route_ == Route::accumulator) return settle_accumulator();
  // The mean is over all ranks, so that one which skipped owes its share of it too.
  if (route_ == Route::low_rank && common_.recipe.error_feedback) {
    is_empty_ = false;
    return low_rank_->subtract_from(accumulator_);
  }
  if (!contributes_) return;
  if (route_ == Route::dense) empty_accumulator();
  if (route_ == Route::gathered && common_.recipe.error_feedback) keep_what_coding_lost();
  if (route_ != Route::dense) mask(taken_);
  taken_ = {};
}

void Pipeline::settle_accumulator() {
  stats_.select_seconds = outcome_.select_seconds;
  if (!contributes_) {
    is_empty_ = false;
    accumulate({}, guest_, {}, {}, accumulator_);  // the next step looks whether that was too much
    return;
  }
  stats_.taken = outcome_.taken.nnz();
  mask(outcome_.taken);
}

void Pipeline::mask(const AnyStream& left) {
  if (common_.recipe.masking) timed(stats_.mask_seconds, [&] { clear_at(velocity_, left); });
}

// What a selector took out left zeros; without a selector the accumulator still holds what was coded.
void Pipeline::keep_what_coding_lost() {
  const AnyStream& decoded = contributions_.by_rank[static_cast<std::size_t>(common_.rank)].stream;
  if (taken_.nnz() > 0) return put_back_rest(accumulator_, taken_, decoded);
  subtract(accumulator_, decoded);
}

// Without a residual nobody looks at what is left, and the next gradient overwrites it.
void Pipeline::empty_accumulator() {
  is_empty_ = true;
  if (common_.recipe.error_feedback) std::ranges::fill(accumulator_, 0.0f);
}

}  // namespace tulle::gradient
