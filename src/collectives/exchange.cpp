#include "collectives/exchange.hpp"

#include <fmt/format.h>

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

Exchange::Exchange(Operation& operation, ValueType type, std::uint64_t dimension, const CallOptions& options)
    : operation_(operation),
      op_(options.op),
      expectation_{type, options.op.code(), operation.sequence(), dimension},
      index_choice_(options.index_coding,
                    profile_of_rank(operation.profile(), operation.size(), operation.node_count())),
      value_codec_(options.value_coding),
      codes_contributions_(options.codes_contributions),
      rounding_{.seed = options.seed, .step = options.step.value_or(operation.sequence())},
      layout_rule_(index_choice_.layout_rule(static_cast<double>(size_of(type)))) {}

Exchange::Exchange(Operation& operation, const Accumulator& accumulator, const CallOptions& options, Ledger& ledger)
    : Exchange(operation, accumulator.type(), accumulator.dimension(), options) {
  codes_contributions_ = true;
  ledger_ = &ledger;
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
    return encode_frame(part.stream, label_of(part), {.indices = indices}, segments);
  }
  segments.insert(segments.end(), part.frame.begin(), part.frame.end());
  return bytes_of_body(part.frame);
}

// Encoding takes about as long as decoding.
void Exchange::charge_coding(IndexCoding indices, std::uint64_t nnz) const {
  operation_.charge(index_choice_.seconds(indices) / 2 * static_cast<double>(nnz));
}

// Messages are numbered by Step within a training step, and a rank codes a block once in each of them.
Part Exchange::with_coded_values(Part part, Step step, Coders coders) {
  if (value_codec_.coding == ValueCoding::raw) return part;
  RoundingKey rounding = rounding_;
  rounding.rank = static_cast<std::uint64_t>(coders.rank);
  rounding.step = rounding_.step << 16 | step;
  rounding.position = part.stream.range().begin;
  const IndexCoding indices = index_choice_.for_stream(part.stream);
  charge_coding(indices, part.stream.nnz());
  encode_frame(part.stream, label_of(part), {.indices = indices, .values = value_codec_, .rounding = rounding},
               part.frame);
  operation_.charge({.dense_items = part.stream.nnz()});
  std::span<const Buffer> segments = part.frame;
  AnyStream decoded = decode_frame(segments, expectation_).stream;
  if (ledger_ != nullptr) ledger_->drop(difference(part.stream, decoded), coders.count);
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
    DecodedFrame frame = decode_frame(segments, expectation_, landing);
    operation_.count_received(frame.data_bytes);
    charge_coding(frame.head.index_coding, frame.head.nnz);
    return {std::move(frame.stream), frame.head.contributed, {}, frame.head.last_call};
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
  Part sum{tulle::reduce(std::move(lower.stream), std::move(higher.stream), op_, &report, layout_rule_),
           contributed,
           {},
           std::max(lower.last_call, higher.last_call)};
  operation_.charge(report);
  return sum;
}

namespace {

// What kernels take of many parts.
struct Streams {
  PoolVector<AnyStream> streams;
  std::uint64_t contributed = 0;
  Ticks last_call = 0;
};

Streams streams_of(std::span<const Part> parts) {
  Streams all;
  all.streams.reserve(parts.size());
  for (const Part& part : parts) {
    all.streams.push_back(part.stream);
    all.contributed += part.contributed;
    all.last_call = std::max(all.last_call, part.last_call);
  }
  return all;
}

}  // namespace

Part Exchange::reduce_many(std::span<const Part> parts, std::optional<LayoutRule> rule, Buffer landing) {
  KernelReport report;
  const Streams all = streams_of(parts);
  Part sum{tulle::reduce_many(all.streams, op_, &report, rule.value_or(layout_rule_), std::move(landing)),
           all.contributed,
           {},
           all.last_call};
  operation_.charge(report);
  return sum;
}

Part Exchange::concatenate(std::span<const Part> blocks, std::optional<LayoutRule> rule, JoinLanding landing) {
  KernelReport report;
  const Streams all = streams_of(blocks);
  Part whole{tulle::concatenate(all.streams, op_, &report, rule.value_or(layout_rule_), std::move(landing)),
             all.contributed,
             {},
             all.last_call};
  operation_.charge(report);
  return whole;
}

Buffer Exchange::make_dense_result(Step first_final_step, bool phantom) {
  const std::size_t bytes = dimension() * size_of(type());
  if (phantom) return Buffer::phantom(bytes);
  dense_result_ = Buffer::allocate(bytes);
  first_final_step_ = first_final_step;
  operation_.land_with([this](Step step, std::span<const Buffer> arrived, std::size_t segment, std::uint64_t length) {
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
  outcome.last_call = std::max(result.last_call, operation_.last_call());
  return outcome;
}

Outcome Exchange::outcome(Part result, const Ledger& ledger) const {
  Outcome outcome = this->outcome(std::move(result));
  outcome.delivered = to_sparse(outcome.stream, op_).indices_buffer();
  outcome.select_seconds = ledger.select_seconds();
  return outcome;
}

Range Blocks::of(int rank) const {
  if (cuts.empty()) return block_of(dimension, ranks, rank);
  return {cuts[static_cast<std::size_t>(rank)], cuts[static_cast<std::size_t>(rank) + 1]};
}

Members Members::all(const Exchange& exchange) {
  return {exchange.rank(), exchange.size(), [](const void*, int member) { return member; }, nullptr};
}

int Members::number_of(int rank) const {
  if (rank < size && (*this)[rank] == rank) return rank;  // always, where all take part
  int member = 0;
  while (member < size && (*this)[member] != rank) ++member;
  return member;
}

Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, Members members, std::optional<LayoutRule> rule,
                            Buffer result, std::span<const std::uint64_t> cuts) {
  const int number = members.rank;
  const int size = members.size;
  const Blocks blocks{exchange.dimension(), size, cuts};
  // The rank's own block speaks for all that it contributes.
  const auto part_for = [&](int owner) {
    const std::uint64_t contributed = owner == number ? mine.contributed : 0;
    return exchange.with_coded_contribution({slice(mine.stream, blocks.of(owner)), contributed, {}, mine.last_call},
                                            step);
  };
  // Everyone starts with its right-hand neighbour, so that no owner is sent to by all at once.
  for (int i = 1; i < size; ++i) exchange.send(members[(number + i) % size], step, part_for((number + i) % size));

  PoolVector<Part> parts(static_cast<std::size_t>(size));
  parts[static_cast<std::size_t>(number)] = part_for(number);
  for (int i = 1; i < size; ++i) {
    Incoming message = co_await exchange.operation().receive_next(step);
    const int from = members.number_of(message.from);
    if (from == size) reject_message(message.from, "it takes no part in this");
    parts[static_cast<std::size_t>(from)] = exchange.open(std::move(message));
  }
  Buffer landing;
  if (!result.empty()) landing = exchange.block_of_result(result, blocks.of(number));
  co_return exchange.reduce_many(parts, rule, std::move(landing));
}

Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, std::optional<LayoutRule> rule, Buffer result,
                            std::span<const std::uint64_t> cuts) {
  return split_and_reduce(exchange, std::move(mine), step, Members::all(exchange), rule, std::move(result), cuts);
}

void pass_down(Exchange& exchange, const patterns::Binomial& tree, const Part& part, Step step) {
  int largest = 1;
  while (tree.has_child(largest)) largest *= 2;
  for (int bit = largest / 2; bit >= 1; bit /= 2) exchange.send(tree.child(bit), step, part);
}

Part open_and_pass_down(Exchange& exchange, const patterns::Binomial& tree, Incoming message, Step step) {
  Segments frame = message.segments;
  Part part = exchange.open(std::move(message));
  part.frame = std::move(frame);
  pass_down(exchange, tree, part, step);
  part.frame.clear();
  return part;
}

}  // namespace tulle
