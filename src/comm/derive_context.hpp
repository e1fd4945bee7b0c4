// Communicators made of others: their ids, and what they take over.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "comm/context_table.hpp"

namespace tulle {

/// An id that a new context may get. Where nobody says what became of it, other ranks may have made a context of it
/// that this one knows nothing of: then it ends as the id of a context does.
class ReservedId {
 public:
  explicit ReservedId(std::shared_ptr<ContextTable> table) : table_(std::move(table)), id_(table_->reserve()) {}
  ReservedId(ReservedId&&) noexcept = default;
  ~ReservedId() {
    if (table_) table_->remove(id_);
  }
  ContextId id() const { return id_; }
  /// A context of this rank's has it.
  void use() { table_.reset(); }
  /// No rank has made, or will make, a context of it.
  void give_back() { std::exchange(table_, nullptr)->give_back(id_); }

 private:
  std::shared_ptr<ContextTable> table_;
  ContextId id_;
};

/// A context of those ranks of `parent`, in that order, with its deadline, policy, profile and nodes. To be given to
/// Engine::add_context(). REQUIRES: the parent's rank is one of them; the id is no other context's.
std::shared_ptr<Context> derive_context(const Context& parent, ContextId id, std::span<const int> ranks);

}  // namespace tulle
