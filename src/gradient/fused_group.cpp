#include "gradient/fused_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gradient/accumulate.hpp"
#include "gradient/outlast.hpp"
#include "tulle/base/error.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::gradient {

std::size_t FusedGroup::add(std::string name, std::uint64_t size) {
  members_.push_back({std::move(name), values_.size(), size});
  values_.resize(values_.size() + size);
  return members_.size() - 1;
}

void FusedGroup::contribute(std::size_t member, const AnyStream& contribution, const CallOptions& options) {
  const bool is_phantom = contribution.is_phantom();
  if (!is_phantom) write_dense(contribution, 1, place_of(member), ArrayWriter(all_values_));
  members_[member].is_here = true;
  here_ += 1;
  if (here_ < members_.size()) return;
  here_ = 0;
  for (Member& each : members_) each.is_here = false;
  error_ = nullptr;
  const std::span<const float> all = values_;
  Buffer memory = is_phantom ? Buffer::phantom(all.size_bytes()) : Buffer::borrow(std::as_bytes(all));
  const AnyStream stream = AnyStream::dense(ValueType::f32, all.size(), {0, all.size()}, std::move(memory));
  request_ = iallreduce(channel_, stream, options, &algorithm_);
}

bool FusedGroup::test() { return here_ == 0 && (!request_.valid() || request_.test()); }

// A member that is here waits for others; one that is not is part of a sum that has started.
void FusedGroup::require_started(std::size_t member) const {
  if (!members_[member].is_here) return;
  const auto missing = std::ranges::find(members_, false, &Member::is_here);
  throw Error(ErrorKind::bad_input,
              fmt::format("{} travels with {}, which was neither started nor skipped; call end_step() first",
                          members_[member].name, missing->name));
}

// Shares add up to the whole, however they are rounded: each is the difference of two places.
Counts FusedGroup::counts_of(std::size_t member) const {
  const Member& place = members_[member];
  const auto total = static_cast<double>(std::max<std::uint64_t>(1, size()));
  const double begin = static_cast<double>(place.offset) / total;
  const double end = static_cast<double>(place.offset + place.size) / total;
  const auto part_of = [&](std::uint64_t count) {
    const auto all = static_cast<double>(count);
    return static_cast<std::uint64_t>(all * end) - static_cast<std::uint64_t>(all * begin);
  };
  Counts counts;
  counts.bytes_sent = part_of(result_.counts.bytes_sent);
  counts.data_bytes_received = part_of(result_.counts.data_bytes_received);
  counts.encode_seconds = result_.counts.encode_seconds * (end - begin);
  counts.decode_seconds = result_.counts.decode_seconds * (end - begin);
  return counts;
}

Task<AnyStream> FusedGroup::sum_of(std::size_t member) {
  if (request_.valid()) {
    try {
      result_ = co_await request_;
      result_.stream = to_dense(result_.stream, Op::sum());
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  if (error_) std::rethrow_exception(error_);
  const Member& place = members_[member];
  const Buffer values = result_.stream.values_buffer().slice(place.offset * sizeof(float), place.size * sizeof(float));
  co_return AnyStream::dense(ValueType::f32, place.size, {0, place.size}, values);
}

Task<> FusedGroup::abandon() {
  Task<> exchange = outlast(request_);
  co_await exchange;
  for (Member& member : members_) member.is_here = false;
  here_ = 0;
  error_ = nullptr;
  result_ = {};
}

void FusedGroup::move_to(const Communicator& channel) {
  channel_ = channel;
  algorithm_ = {};
}

}  // namespace tulle::gradient
