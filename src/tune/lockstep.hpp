// The steps of an operation in which ranks take turns, and barriers between them.
#pragma once

#include "tulle/comm/operation.hpp"
#include "tulle/comm/task.hpp"

namespace tulle {

class Lockstep {
 public:
  explicit Lockstep(Operation& operation) : operation_(operation) {}

  Operation& operation() { return operation_; }
  int rank() const { return operation_.rank(); }
  int size() const { return operation_.size(); }

  /// The first of `count` steps that nobody has used. All ranks take the same, also where one sends nothing in them.
  Step take_steps(int count);
  /// Ends when all ranks have come here: ⌈log2 P⌉ empty messages.
  Task<> barrier();

 private:
  Operation& operation_;
  Step next_step_ = 0;
};

}  // namespace tulle
