#include "collectives/exchange.hpp"

#include <fmt/format.h>

#include "base/timed.hpp"
#include "codec/recode.hpp"
#include "collectives/ledger.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle {

void reject_message(int from, const std::string& why) {
  throw Error(ErrorKind::bad_message, fmt::format("in a message from rank {}: {}", from, why)).with_peer(from);
}

std::uint64_t bytes_of_body(std::span<const Buffer> frame) {
  std::uint64_t bytes = 0;
  for (const Buffer& array : frame.subspan(1)) bytes += array.size();
  return bytes;
}

Range block_of(std::uint64_t dimension, int ranks, int rank) {
  const auto cut = [&](int at) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(dimension) * static_cast<unsigned>(at) /
                                      static_cast<unsigned>(ranks));
  };
  return {cut(rank), cut(rank + 1)};
}

namespace {

// Tensors of equal size that are rounded in the same step must not share their dice.
std::uint64_t seed_of(std::uint64_t seed, std::uint32_t channel) {
  return seed ^ (std::uint64_t{channel} * 0x9E3779B97F4A7C15u);
}

// Whose errors are so small that those of ⌈log2 P⌉ codings in a row add up to less than what was coded.
bool rounds_finely(const ValueCodec& codec) {
  switch (codec.coding) {
    case ValueCoding::raw:
    case ValueCoding::f32:
    case ValueCoding::f16:
    case ValueCoding::bf16:
    case ValueCoding::int8: return true;
    default: return false;
  }
}

CallOptions with_values_coded(CallOptions options) {
  options.coded_values = rounds_finely(options.value_coding) ? CodedValues::both : CodedValues::sums;
  return options;
}

}  // namespace

Exchange::Exchange(Operation& operation, ValueType type, std::uint64_t dimension, const CallOptions& options)
    : operation_(operation),
      op_(options.op),
      expectation_{type, options.op.code(), operation.sequence(), dimension, options.value_coding.threads},
      index_choice_(options.index_coding,
                    profile_of_rank(operation.profile(), operation.size(), operation.node_count())),
      value_codec_(options.value_coding),
      coded_values_(options.coded_values),
      rounding_{.seed = seed_of(options.seed, operation.channel()),
                .step = options.step.value_or(operation.sequence())},
      layout_rule_(index_choice_.layout_rule(static_cast<double>(size_of(type)), index_bytes(dimension))),
      coded_layout_rule_(layout_rule_) {
  if (value_codec_.coding == ValueCoding::raw) return;
  const LayoutRule coded = index_choice_.layout_rule(layout_value_bytes(value_codec_, type), index_bytes(dimension));
  if (coded_values_ != CodedValues::contributions) coded_layout_rule_ = coded;
  if (coded_values_ != CodedValues::sums) layout_rule_ = coded;
}

Exchange::Exchange(Operation& operation, const Accumulator& accumulator, const CallOptions& options, Ledger& ledger)
    : Exchange(operation, accumulator.type(), accumulator.dimension(), with_values_coded(options)) {
  ledger_ = &ledger;
  keep_what_coding_loses();
}

Part Exchange::contribution(const AnyStream& input) { return {input, input.nnz(), {}}; }

Part Exchange::dense_contribution(const AnyStream& input) {
  KernelReport report;
  Part dense{to_dense(input, op_, &report), input.nnz(), {}};
  operation_.charge(report);
  return dense;
}

std::uint64_t Exchange::encode(const Part& part, Segments& segments) const {
  if (part.frame.empty()) {
    const IndexCoding indices = index_choice_.for_stream(part.stream);
    charge_coding(indices, part.stream.nnz());
    const double began = now_seconds();
    const std::uint64_t data_bytes = encode_frame(part.stream, label_of(part), {.indices = indices}, segments);
    operation_.count_encoding(now_seconds() - began);
    return data_bytes;
  }
  segments.insert(segments.end(), part.frame.begin(), part.frame.end());
  return bytes_of_body(part.frame);
}

// Encoding takes about as long as decoding.
void Exchange::charge_coding(IndexCoding indices, std::uint64_t nnz) const {
  operation_.charge(index_choice_.seconds(indices) / 2 * static_cast<double>(nnz));
}

// Messages are numbered by Step within a training step, and a rank codes a block once in each of them.
Part Exchange::with_coded_values(Part part, Step step, Coders coders, Buffer landing) {
  if (value_codec_.coding == ValueCoding::raw) return part;
  RoundingKey rounding = rounding_;
  rounding.rank = static_cast<std::uint64_t>(coders.rank);
  rounding.step = rounding_.step << 16 | step;
  rounding.position = part.stream.range().begin;
  const IndexCoding indices = index_choice_.for_stream(part.stream);
  charge_coding(indices, part.stream.nnz());
  const double began = now_seconds();
  if (!part.stream.is_dense()) landing = {};
  const FrameCodings codings{.indices = indices, .values = value_codec_, .rounding = rounding};
  AnyStream decoded = recode_frame(part.stream, label_of(part), codings, std::move(landing), part.frame, scales_);
  operation_.count_encoding(now_seconds() - began);
  operation_.charge({.dense_items = part.stream.nnz()});
  if (ledger_ != nullptr) ledger_->drop(difference(part.stream, decoded), coders.sharers);
  part.stream = std::move(decoded);
  return part;
}

void Exchange::send(int to, Step step, const Part& part) {
  Segments segments;
  segments.reserve(3);
  const std::uint64_t data_bytes = encode(part, segments);
  operation_.send(to, step, std::move(segments), data_bytes);
}

FrameHead Exchange::head_of(int from, std::span<const Buffer> segments) const {
  if (segments.empty()) reject_message(from, "frame field 'head': is missing");
  try {
    return decode_frame_head(segments.front().bytes(), expectation_);
  } catch (const Error& error) {
    reject_message(from, error.what());
  }
}

Part Exchange::decode(int from, std::span<const Buffer>& segments, const PairLanding& landing) {
  try {
    const double began = now_seconds();
    DecodedFrame frame = decode_frame(segments, expectation_, landing);
    operation_.count_decoding(now_seconds() - began);
    operation_.count_received(frame.data_bytes);
    charge_coding(frame.head.index_coding, frame.head.nnz);
    if (frame.head.value_coding != ValueCoding::raw) operation_.charge({.dense_items = frame.head.nnz});
    return {std::move(frame.stream), frame.head.contributed, {}};
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("in a message from rank {}: {}", from, error.what())).with_peer(from);
  }
}

void require_all_read(std::span<const Buffer> rest, int from) {
  if (!rest.empty()) reject_message(from, "it holds more than its frames");
}

Part Exchange::open(Incoming message) {
  std::span<const Buffer> segments = message.segments;
  Part part = decode(message.from, segments);
  require_all_read(segments, message.from);
  return part;
}

PoolVector<Part> Exchange::open(Incoming message, std::span<const Range> ranges) {
  std::span<const Buffer> segments = message.segments;
  PoolVector<Part> parts;
  for (const Range range : ranges) {
    parts.push_back(decode(message.from, segments));
    const Range got = parts.back().stream.range();
    if (got != range) {
      throw Error(ErrorKind::bad_message, fmt::format("frame field 'range': is [{}, {}), expected [{}, {})", got.begin,
                                                      got.end, range.begin, range.end))
          .with_peer(message.from);
    }
  }
  require_all_read(segments, message.from);
  return parts;
}

Part Exchange::reduce(Part lower, Part higher) {
  KernelReport report;
  const std::uint64_t contributed = lower.contributed + higher.contributed;
  Part sum{
      tulle::reduce(std::move(lower.stream), std::move(higher.stream), op_, &report, layout_rule_), contributed, {}};
  operation_.charge(report);
  return sum;
}

namespace {

// What kernels take of many parts.
struct Streams {
  PoolVector<AnyStream> streams;
  std::uint64_t contributed = 0;
};

Streams streams_of(std::span<const Part> parts) {
  Streams all;
  all.streams.reserve(parts.size());
  for (const Part& part : parts) {
    all.streams.push_back(part.stream);
    all.contributed += part.contributed;
  }
  return all;
}

}  // namespace

Part Exchange::reduce_many(std::span<const Part> parts, std::optional<LayoutRule> rule, Buffer landing) {
  KernelReport report;
  const Streams all = streams_of(parts);
  Part sum{tulle::reduce_many(all.streams, op_, &report, rule.value_or(layout_rule_), std::move(landing)),
           all.contributed,
           {}};
  operation_.charge(report);
  return sum;
}

Part Exchange::concatenate(std::span<const Part> blocks, std::optional<LayoutRule> rule, JoinLanding landing) {
  KernelReport report;
  const Streams all = streams_of(blocks);
  Part whole{tulle::concatenate(all.streams, op_, &report, rule.value_or(layout_rule_), std::move(landing)),
             all.contributed,
             {}};
  operation_.charge(report);
  return whole;
}

Buffer Exchange::make_dense_result(Step first_final_step, bool phantom) {
  const std::size_t bytes = dimension() * size_of(type());
  if (phantom) return Buffer::phantom(bytes);
  dense_result_ = Buffer::allocate(bytes);
  first_final_step_ = first_final_step;
  landing_.emplace(operation_, [this](Step step, std::span<const Buffer> arrived, std::size_t segment,
                                      std::uint64_t length) {
    // The values of a dense frame follow its head, which came with the envelope.
    if (step < first_final_step_ || segment == 0 || arrived[segment - 1].size() != kFrameHeadBytes) return Buffer();
    const FrameHead head = decode_frame_head(arrived[segment - 1].bytes());
    const bool fits = head.layout == Layout::dense && head.value_coding == ValueCoding::raw && head.type == type() &&
                      head.dimension == dimension() && head.range.size() * size_of(type()) == length;
    return fits ? block_of_result(dense_result_, head.range) : Buffer();
  });
  return dense_result_;
}

Buffer Exchange::block_of_result(const Buffer& result, Range range) const {
  return result.slice(range.begin * size_of(type()), range.size() * size_of(type()));
}

Outcome Exchange::outcome(Part result) const {
  Outcome outcome;
  outcome.stream = std::move(result.stream);
  outcome.contributed = result.contributed;
  return outcome;
}

Outcome Exchange::outcome(Part result, const Ledger& ledger) const {
  Outcome outcome = this->outcome(std::move(result));
  outcome.delivered = to_sparse(outcome.stream, op_).indices_buffer();
  outcome.taken = ledger.taken();
  outcome.select_seconds = ledger.select_seconds();
  return outcome;
}

}  // namespace tulle
