#include "gradient/fused_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "gradient/accumulate.hpp"
#include "gradient/outlast.hpp"
#include "tulle/base/error.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::gradient {
namespace {

using Index = std::uint32_t;  // groups are smaller than 2^32 values

// Positions in a sum become positions in a member.
Buffer moved_down(std::span<const Index> indices, std::uint64_t by) {
  Buffer moved = Buffer::allocate(indices.size_bytes());
  std::ranges::transform(indices, moved.as_mutable<Index>().begin(),
                         [by](Index index) { return static_cast<Index>(index - by); });
  return moved;
}

// The values from `begin` on, as a stream of their own.
AnyStream part_of(const AnyStream& sum, std::uint64_t begin, std::uint64_t size) {
  const Range all{0, size};
  if (sum.is_dense()) {
    const Buffer values = sum.values_buffer().slice(begin * sizeof(float), size * sizeof(float));
    return AnyStream::dense(ValueType::f32, size, all, values);
  }
  const AnyStream part = slice(sum, {begin, begin + size});
  if (part.is_phantom()) return AnyStream::phantom(ValueType::f32, size, all, Layout::sparse, part.nnz());
  Buffer indices = moved_down(part.indices_buffer().as<Index>(), begin);
  return AnyStream::sparse(ValueType::f32, size, all, std::move(indices), part.values_buffer());
}

}  // namespace

std::size_t FusedGroup::add(std::string name, std::uint64_t size) {
  members_.push_back({.name = std::move(name), .place = size_, .size = size});
  size_ += size;
  return members_.size() - 1;
}

std::span<float> FusedGroup::place_of(std::size_t member) {
  if (values_.size() != size_) values_.resize(size_);
  return std::span(values_).subspan(members_[member].place, members_[member].size);
}

void FusedGroup::contribute_all(std::size_t member, const AnyStream& values, const CallOptions& options) {
  is_phantom_ = values.is_phantom();
  if (!is_phantom_) write_dense(values, 1, place_of(member), ArrayWriter(all_values_));
  all_.options = options;
  arrive(member, Sends::all);
}

void FusedGroup::contribute_selection(std::size_t member, AnyStream selection, const CallOptions& options) {
  assert(!selection.is_dense());
  is_phantom_ = selection.is_phantom();
  members_[member].selection = std::move(selection);
  members_[member].density = options.density.value_or(1);
  selected_.options = options;
  arrive(member, Sends::selection);
}

void FusedGroup::stay_away(std::size_t member) { arrive(member, Sends::nothing); }

void FusedGroup::arrive(std::size_t member, Sends sends) {
  assert(!members_[member].is_here);
  members_[member].is_here = true;
  members_[member].sends = sends;
  here_ += 1;
  if (here_ == members_.size()) start_sums();
}

void FusedGroup::start_sums() {
  here_ = 0;
  lay_out();
  try {
    if (all_.members > 0) all_.request = iallreduce(channel_, all_values(), all_.options, &all_.algorithm);
    if (selected_.members > 0) {
      selected_.options.density = expected_density();
      selected_.request = iallreduce(channel_, joined_selections(), selected_.options, &selected_.algorithm);
    }
  } catch (...) {  // which the last member is told now, and the others when they finish
    for (Sum* const sum : {&all_, &selected_}) {
      if (!sum->request.valid()) sum->error = std::current_exception();
    }
    throw;
  }
}

// Parts lie in the order of registration, which is the same on all ranks.
void FusedGroup::lay_out() {
  for (Sum* const sum : {&all_, &selected_}) {
    sum->size = sum->members = 0;
    sum->error = nullptr;
    sum->result = {};
  }
  for (Member& member : members_) {
    member.is_here = false;
    if (member.sends == Sends::nothing) continue;
    Sum& sum = sum_for(member.sends);
    member.begin = sum.size;
    sum.size += member.size;
    sum.members += 1;
  }
}

// Moves down those that send all, where others do not. Each has been moved before the next one takes its place.
void FusedGroup::close_gaps() {
  for (const Member& member : members_) {
    if (member.sends != Sends::all || member.begin == member.place || member.size == 0) continue;
    std::memmove(&values_[member.begin], &values_[member.place], member.size * sizeof(float));
  }
}

AnyStream FusedGroup::all_values() {
  const std::uint64_t size = all_.size;
  if (is_phantom_) return AnyStream::phantom(ValueType::f32, size, {0, size}, Layout::dense, size);
  if (size < size_) close_gaps();
  const std::span<const float> all = std::span<const float>(values_).first(size);
  return AnyStream::dense(ValueType::f32, size, {0, size}, Buffer::borrow(std::as_bytes(all)));
}

AnyStream FusedGroup::joined_selections() {
  std::uint64_t nnz = 0;
  for (const Member& member : members_) nnz += member.sends == Sends::selection ? member.selection.nnz() : 0;
  const Range all{0, selected_.size};
  if (is_phantom_) return AnyStream::phantom(ValueType::f32, all.end, all, Layout::sparse, nnz);
  Buffer indices = Buffer::allocate(nnz * sizeof(Index)), values = Buffer::allocate(nnz * sizeof(float));
  auto to_index = indices.as_mutable<Index>().begin();
  auto to_value = values.as_mutable<float>().begin();
  for (Member& member : members_) {
    if (member.sends != Sends::selection) continue;
    const AnyStream selection = std::exchange(member.selection, {});
    to_index = std::ranges::transform(selection.indices_buffer().as<Index>(), to_index, [&](Index index) {
                 return static_cast<Index>(index + member.begin);
               }).out;
    to_value = std::ranges::copy(selection.values_buffer().as<float>(), to_value).out;
  }
  return AnyStream::sparse(ValueType::f32, all.end, all, std::move(indices), std::move(values));
}

// Of all selections together. Densities are agreed, so that this is the same everywhere.
double FusedGroup::expected_density() const {
  double values = 0;
  for (const Member& member : members_) {
    if (member.sends == Sends::selection) values += member.density * static_cast<double>(member.size);
  }
  return selected_.size == 0 ? 0 : std::min(1.0, values / static_cast<double>(selected_.size));
}

bool FusedGroup::test(std::size_t member) {
  if (members_[member].is_here) return false;
  Sum& sum = sum_for(members_[member].sends);
  return !sum.request.valid() || sum.request.test();
}

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
  const Member& part = members_[member];
  const Sum& sum = sum_for(part.sends);
  const auto total = static_cast<double>(std::max<std::uint64_t>(1, sum.size));
  const double begin = static_cast<double>(part.begin) / total;
  const double end = static_cast<double>(part.begin + part.size) / total;
  const auto part_of = [&](std::uint64_t count) {
    const auto all = static_cast<double>(count);
    return static_cast<std::uint64_t>(all * end) - static_cast<std::uint64_t>(all * begin);
  };
  Counts counts;
  counts.bytes_sent = part_of(sum.result.counts.bytes_sent);
  counts.data_bytes_received = part_of(sum.result.counts.data_bytes_received);
  counts.encode_seconds = sum.result.counts.encode_seconds * (end - begin);
  counts.decode_seconds = sum.result.counts.decode_seconds * (end - begin);
  return counts;
}

Task<AnyStream> FusedGroup::sum_of(std::size_t member) {
  const Member& part = members_[member];
  Sum& sum = sum_for(part.sends);
  if (sum.request.valid()) {
    try {
      sum.result = co_await sum.request;
      if (part.sends == Sends::all) sum.result.stream = to_dense(sum.result.stream, Op::sum());
    } catch (...) {
      sum.error = std::current_exception();
    }
  }
  if (sum.error) std::rethrow_exception(sum.error);
  co_return part_of(sum.result.stream, part.begin, part.size);
}

Task<> FusedGroup::abandon() {
  for (Sum* const sum : {&all_, &selected_}) {
    Task<> exchange = outlast(sum->request);
    co_await exchange;
    sum->error = nullptr;
    sum->result = {};
  }
  for (Member& member : members_) {
    member.is_here = false;
    member.selection = {};
  }
  here_ = 0;
}

void FusedGroup::move_to(const Communicator& channel) {
  channel_ = channel;
  all_.algorithm = selected_.algorithm = {};
}

}  // namespace tulle::gradient
