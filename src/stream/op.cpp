#include "tulle/stream/op.hpp"

#include <limits>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

struct NamedOp {
  OpCode code;
  std::string_view name;
};
constexpr NamedOp kOps[] = {
    {OpCode::sum, "sum"},         {OpCode::prod, "prod"},     {OpCode::min, "min"},         {OpCode::max, "max"},
    {OpCode::bit_and, "bit_and"}, {OpCode::bit_or, "bit_or"}, {OpCode::bit_xor, "bit_xor"},
};

bool is_bitwise(OpCode code) { return code >= OpCode::bit_and && code <= OpCode::bit_xor; }

template <class V>
V neutral_of(OpCode code) {
  using Limits = std::numeric_limits<V>;
  switch (code) {
    case OpCode::prod: return V{1};
    case OpCode::min: return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case OpCode::max: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case OpCode::bit_and: return static_cast<V>(-1);
    default: return V{0};
  }
}

}  // namespace

Op Op::from_user_op(UserOp op) {
  if (op.name.empty()) throw Error(ErrorKind::bad_input, "a user op needs a name, which ranks compare");
  if (op.type != compute_type(op.type)) {
    throw Error(ErrorKind::bad_input, "user op '" + op.name + "': f16 and bf16 are computed in f32; define it on f32");
  }
  Op result(OpCode::user);
  result.user_ = std::make_shared<const UserOp>(std::move(op));
  return result;
}

std::string_view Op::name() const {
  if (user_) return user_->name;
  for (const NamedOp& op : kOps) {
    if (op.code == code_) return op.name;
  }
  return "unknown";
}

void Op::require_defined_on(ValueType type) const {
  if (is_bitwise(code_) && !is_integer(type)) {
    throw Error(ErrorKind::bad_input,
                std::string(name()) + " is defined on i32 and i64, not on " + std::string(to_string(type)));
  }
  if (user_ && user_->type != compute_type(type)) {
    throw Error(ErrorKind::bad_input, "user op '" + user_->name + "' is defined on " +
                                          std::string(to_string(user_->type)) + ", not on " +
                                          std::string(to_string(type)));
  }
}

ScalarBytes Op::neutral(ValueType type) const {
  if (user_) return user_->neutral;
  return visit_compute_type(compute_type(type), [&]<class V>() { return scalar_bytes(neutral_of<V>(code_)); });
}

Op op_from(std::string_view name) {
  std::string allowed;
  for (const NamedOp& op : kOps) {
    if (op.name == name) {
      switch (op.code) {
        case OpCode::sum: return Op::sum();
        case OpCode::prod: return Op::prod();
        case OpCode::min: return Op::min();
        case OpCode::max: return Op::max();
        case OpCode::bit_and: return Op::bit_and();
        case OpCode::bit_or: return Op::bit_or();
        default: return Op::bit_xor();
      }
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(op.name);
  }
  throw Error(ErrorKind::bad_input,
              "no operation is called '" + std::string(name) + "'; there are " + allowed + did_you_mean(name, allowed));
}

}  // namespace tulle
