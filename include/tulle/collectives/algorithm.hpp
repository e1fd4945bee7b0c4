// The registry: every algorithm is a row of data, and everything that lists algorithms reads the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tulle/comm/algorithm_state.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle {

inline constexpr std::string_view kAuto = "auto";

/// What the caller asks for. Everything here must be equal on all ranks.
struct CallOptions {
  std::string_view algorithm = kAuto;  ///< a row's name, or auto: the cheapest by the communicator's profile
  Op op = Op::sum();
  int root = 0;                        ///< of reduce and broadcast
  std::optional<double> density;       ///< expected share of non-zeros in one rank's stream; auto believes it
  double deadline_seconds = 0;         ///< 0: the communicator's default
  bool checksum = false;               ///< a CRC-32C of every payload
  bool reproducible = false;           ///< auto decides by the options alone and learns nothing from earlier calls
};

/// What is reduced: the rank's contribution going in. Rows for what no stream can express get fields of their own.
struct Payload {
  AnyStream stream;
};

struct Outcome {
  AnyStream stream;
  std::string_view algorithm;      ///< the row that ran
  Counts counts;
  std::uint64_t contributed = 0;   ///< non-zeros of all contributions together; 0 where a row cannot know
  std::uint64_t overflowed = 0;    ///< results that no longer fit f16 or bf16 and became infinite
};

/// What a cost depends on. SparCML's symbols: P, N, k, K, isize, c; then α, β, γ.
struct CostInput {
  int ranks = 1;
  double dimension = 0;
  double nnz = 0;         ///< k: of one rank
  double result_nnz = 0;  ///< K: of the sum
  double value_bytes = 4;
  double index_bytes = 4;
  Profile profile;

  /// Non-zeros expected in the sum of `count` ranks' contributions.
  double union_of(double count) const;
  double pair_bytes() const { return value_bytes + index_bytes; }
  /// Bytes of `nnz` non-zeros among `extent` values in the smaller layout.
  double stream_bytes(double nnz, double extent) const;
};

enum class Exactness { exact };
std::string_view to_string(Exactness exactness);

/// What a row needs beyond messages.
enum class Needs { messages, native_allreduce };

struct Algorithm {
  std::string_view name;
  OperationKind kind;
  std::string_view summary;
  std::string_view paper;
  Exactness exactness;
  Needs needs;
  Layout input;       ///< the layout it works on; a stream of the other one is converted first
  bool dense_result;  ///< makes a dense vector of N values, whatever the input, and so refuses 2^32 of them or more
  double (*cost_seconds)(const CostInput&);
  Task<Outcome> (*run)(Operation&, Payload&, const CallOptions&, AlgorithmState*);
};

/// All rows.
std::span<const Algorithm> registry();
/// Throws bad_input listing the rows of that kind.
const Algorithm& find_algorithm(OperationKind kind, std::string_view name);
/// The row's number in fingerprints: its place in the registry, from 1.
std::uint8_t algorithm_number(const Algorithm& algorithm);

/// The cheapest row of `kind` that needs messages alone. Depends on its arguments only, so ranks agree.
const Algorithm& choose(OperationKind kind, const CostInput& input);

}  // namespace tulle
