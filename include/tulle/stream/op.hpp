// Reduction operations and their neutral elements.
//
// An index that a stream does not hold means the operation's neutral element, also when the stream is made dense.
//
// Threads: an Op never changes, so that any thread may copy and use it. The function of a user's op runs on whatever
// thread reduces, the progress thread among them, and on several at once where several reduce.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tulle/base/value_type.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Numbers are part of the wire format: never renumber.
enum class OpCode : std::uint8_t {
  sum = 1,
  prod = 2,
  min = 3,
  max = 4,
  bit_and = 5,
  bit_or = 6,
  bit_xor = 7,
  user = 8
};

/// One value of any compute type, as bytes.
using ScalarBytes = std::array<std::byte, 8>;

template <class V>
ScalarBytes scalar_bytes(V value) {
  ScalarBytes bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// An operation of the caller's. It combines element by element: result[i] = combine(lower[i], higher[i]), where
/// `result` may be `lower`. What it throws, the reduction throws.
struct UserOp {
  std::string name = {};  ///< the same on all ranks; part of what ranks compare
  ValueType type{};       ///< that it is defined on: a compute type
  ScalarBytes neutral{};
  std::function<void(void* result, const void* lower, const void* higher, std::size_t count)> combine = {};
};

/// A component-wise, associative and commutative operation. Cheap to copy.
class Op {
 public:
  /// The sum.
  Op() = default;
  static Op sum() { return Op(OpCode::sum); }
  static Op prod() { return Op(OpCode::prod); }
  static Op min() { return Op(OpCode::min); }
  static Op max() { return Op(OpCode::max); }
  static Op bit_and() { return Op(OpCode::bit_and); }
  static Op bit_or() { return Op(OpCode::bit_or); }
  static Op bit_xor() { return Op(OpCode::bit_xor); }

  /// REQUIRES: function(neutral, x) == x == function(x, neutral); associative and commutative, as rows reduce in
  /// different orders (each always in the same). V is a compute type. Throws bad_input where the name is empty.
  template <class V, class Function>
  static Op user(std::string name, V neutral, Function function) {
    auto combine = [function](void* result, const void* lower, const void* higher, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        static_cast<V*>(result)[i] = function(static_cast<const V*>(lower)[i], static_cast<const V*>(higher)[i]);
      }
    };
    return from_user_op({std::move(name), kValueTypeOf<V>, scalar_bytes(neutral), std::move(combine)});
  }
  /// The same. Throws bad_input where the name is empty or the type is no compute type.
  static Op from_user_op(UserOp op);

  OpCode code() const { return code_; }
  /// Null but for a user's op. It and a user op's name() live as long as a copy of this Op does.
  const UserOp* user_op() const { return user_.get(); }
  std::string_view name() const;

  /// Throws bad_input where the operation is not defined on `type` (bits of a float, a user op of another type).
  void require_defined_on(ValueType type) const;
  /// The neutral element in the compute type of `type`. REQUIRES: the operation is defined on `type`.
  ScalarBytes neutral(ValueType type) const;
  template <class V>
  V neutral() const {
    V value;
    const ScalarBytes bytes = neutral(kValueTypeOf<V>);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

 private:
  explicit Op(OpCode code) : code_(code) {}

  OpCode code_ = OpCode::sum;
  std::shared_ptr<const UserOp> user_;
};

/// The operation of that name, but for users' ones. Throws bad_input that lists the allowed names.
Op op_from(std::string_view name);

}  // namespace tulle
#pragma GCC visibility pop
