// Communicators made of others: their ids, and what they take over.
#pragma once

#include <memory>
#include <span>

#include "comm/context_table.hpp"

namespace tulle {

/// An id that a new context may get. It goes back unless it was used.
class ReservedId {
 public:
  explicit ReservedId(std::shared_ptr<ContextTable> table) : table_(std::move(table)), id_(table_->reserve()) {}
  ReservedId(ReservedId&&) noexcept = default;
  ~ReservedId() {
    if (table_) table_->give_back(id_);
  }
  ContextId id() const { return id_; }
  void use() { table_.reset(); }

 private:
  std::shared_ptr<ContextTable> table_;
  ContextId id_;
};

/// A context of those ranks of `parent`, in that order, with its deadline, policy, profile and nodes. To be given to
/// Engine::add_context(). REQUIRES: the parent's rank is one of them; the id is no other context's.
std::shared_ptr<Context> derive_context(const Context& parent, ContextId id, std::span<const int> ranks);

}  // namespace tulle
