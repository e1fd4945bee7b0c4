#include "collectives/exchange.hpp"

#include <fmt/format.h>

#include "collectives/ledger.hpp"
#include "collectives/patterns/bruck.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle {

namespace {

// Of a frame's arrays, which follow its head.
std::uint64_t bytes_of_body(std::span<const Buffer> frame) {
  std::uint64_t bytes = 0;
  for (const Buffer& array : frame.subspan(1)) bytes += array.size();
  return bytes;
}

}  // namespace

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
      index_choice_(options.index_coding, operation.profile()),
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
    return encode_frame(part.stream, label_of(part), {.indices = index_choice_.for_stream(part.stream)}, segments);
  }
  segments.insert(segments.end(), part.frame.begin(), part.frame.end());
  return bytes_of_body(part.frame);
}

// Messages are numbered by Step within a training step, and a rank codes a block once in each of them.
Part Exchange::with_coded_values(Part part, Step step, Coders coders) {
  if (value_codec_.coding == ValueCoding::raw) return part;
  RoundingKey rounding = rounding_;
  rounding.rank = static_cast<std::uint64_t>(coders.rank);
  rounding.step = rounding_.step << 16 | step;
  rounding.position = part.stream.range().begin;
  encode_frame(part.stream, label_of(part),
               {.indices = index_choice_.for_stream(part.stream), .values = value_codec_, .rounding = rounding},
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

Part Exchange::decode(int from, std::span<const Buffer>& segments) {
  try {
    DecodedFrame frame = decode_frame(segments, expectation_);
    operation_.count_received(frame.data_bytes);
    return {std::move(frame.stream), frame.head.contributed, {}};
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("in a message from rank {}: {}", from, error.what())).with_peer(from);
  }
}

namespace {

void require_all_read(std::span<const Buffer> rest, int from) {
  if (rest.empty()) return;
  throw Error(ErrorKind::bad_message, fmt::format("a message from rank {} holds more than its frames", from))
      .with_peer(from);
}

}  // namespace

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

Part Exchange::concatenate(std::span<const Part> blocks, std::optional<LayoutRule> rule, Buffer landing) {
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

Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, std::optional<LayoutRule> rule, Buffer result,
                            std::span<const std::uint64_t> cuts) {
  const int rank = exchange.rank();
  const int size = exchange.size();
  const Blocks blocks{exchange.dimension(), size, cuts};
  // A slice of a dense vector does not know its non-zeros: the rank's own block speaks for all of them.
  const auto part_for = [&](int owner) {
    AnyStream block = slice(mine.stream, blocks.of(owner));
    const std::uint64_t nnz = !block.is_dense() ? block.nnz() : owner == rank ? mine.contributed : 0;
    return exchange.with_coded_contribution({std::move(block), nnz, {}}, step);
  };
  // Everyone starts with its right-hand neighbour, so that no owner is sent to by all at once.
  for (int i = 1; i < size; ++i) exchange.send((rank + i) % size, step, part_for((rank + i) % size));

  PoolVector<Part> parts(static_cast<std::size_t>(size));
  parts[static_cast<std::size_t>(rank)] = part_for(rank);
  for (int i = 1; i < size; ++i) {
    Incoming message = co_await exchange.operation().receive_next(step);
    const auto from = static_cast<std::size_t>(message.from);
    parts[from] = exchange.open(std::move(message));
  }
  Buffer landing;
  if (!result.empty()) landing = exchange.block_of_result(result, blocks.of(rank));
  co_return exchange.reduce_many(parts, rule, std::move(landing));
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

namespace {

// A frame that is passed on as it came.
struct EncodedPart {
  Segments segments;
  std::uint64_t data_bytes = 0;
};

EncodedPart take_encoded_part(std::span<const Buffer>& segments, int from) {
  try {
    if (segments.empty()) throw Error(ErrorKind::bad_message, "frame field 'head': is missing");
    const std::size_t count = decode_frame_head(segments.front().bytes()).segment_count();
    if (segments.size() < count) throw Error(ErrorKind::bad_message, "frame field 'segments': some are missing");
    EncodedPart part;
    part.segments.assign(segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(count));
    part.data_bytes = bytes_of_body(part.segments);
    segments = segments.subspan(count);
    return part;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("in a message from rank {}: {}", from, error.what())).with_peer(from);
  }
}

// What a member knows in Bruck's allgather: its own part and those of the members after it, as they came.
class Gathered {
 public:
  Gathered(Exchange& exchange, Part mine, const Members& members)
      : exchange_(exchange), members_(members), known_(1), parts_(static_cast<std::size_t>(members.size)) {
    known_.reserve(static_cast<std::size_t>(members.size));
    known_[0].data_bytes = exchange.encode(mine, known_[0].segments);
    parts_[static_cast<std::size_t>(members.rank)] = std::move(mine);
  }

  int rank_of(int member) const { return members_.rank_of(members_.context, member); }

  // Large blocks go by themselves, so that the receiver decodes one while the next travels.
  void send(const patterns::BruckRound& round, Step step) {
    for (int first = 0; first < round.blocks;) {
      Segments outgoing;
      std::uint64_t data_bytes = 0;
      const int begin = first;
      while (first < round.blocks && (data_bytes < kLargeBytes || !may_part())) {
        const EncodedPart& part = known_[static_cast<std::size_t>(first++)];
        outgoing.insert(outgoing.end(), part.segments.begin(), part.segments.end());
        data_bytes += part.data_bytes;
      }
      exchange_.operation().send(rank_of(round.send_to), step_of(step, begin), std::move(outgoing), data_bytes);
    }
  }

  // The message of a round that begins with its `block`-th block.
  static Step step_of(Step round_step, int block) {
    return static_cast<Step>(round_step + kMostRounds * static_cast<unsigned>(block));
  }

  /// Takes what a message holds; returns how many blocks those were.
  int receive(const Incoming& message, int at_most) {
    std::span<const Buffer> segments = message.segments;
    int blocks = 0;
    for (; blocks < at_most && !segments.empty(); ++blocks) known_.push_back(take_encoded_part(segments, message.from));
    require_all_read(segments, message.from);
    if (blocks == 0) throw Error(ErrorKind::bad_message, "a message without a frame").with_peer(message.from);
    return blocks;
  }

  // What has arrived is decoded while other messages travel.
  void decode_known() {
    for (; decoded_ < known_.size(); ++decoded_) {
      const int member = (members_.rank + static_cast<int>(decoded_)) % members_.size;
      std::span<const Buffer> segments = known_[decoded_].segments;
      parts_[static_cast<std::size_t>(member)] = exchange_.decode(rank_of(member), segments);
      exchange_.operation().push();
    }
  }

  PoolVector<Part> take_parts() { return std::move(parts_); }

 private:
  // Smaller messages cost more latency than decoding takes; larger ones leave the receiver idle.
  static constexpr std::uint64_t kLargeBytes = 256 * 1024;
  // Rounds of any number of ranks, and so the distance between the steps of a round's messages.
  static constexpr unsigned kMostRounds = 64;
  // Steps have 16 bits.
  bool may_part() const { return members_.size <= 1024; }

  Exchange& exchange_;
  const Members& members_;
  PoolVector<EncodedPart> known_;
  PoolVector<Part> parts_;  // by member
  std::size_t decoded_ = 1;
};

}  // namespace

Task<PoolVector<Part>> gather_parts_among(Exchange& exchange, Part mine, Step first_step, Members members) {
  Gathered gathered(exchange, std::move(mine), members);
  Step step = first_step;
  for (int distance = 1; distance < members.size; distance *= 2, ++step) {
    const patterns::BruckRound round = patterns::bruck_round(members.rank, members.size, distance);
    gathered.send(round, step);
    const int from = gathered.rank_of(round.receive_from);
    for (int received = 0; received < round.blocks;) {
      gathered.decode_known();
      const Incoming message = co_await exchange.operation().receive(from, Gathered::step_of(step, received));
      received += gathered.receive(message, round.blocks - received);
    }
  }
  gathered.decode_known();
  co_return gathered.take_parts();
}

Task<PoolVector<Part>> gather_parts(Exchange& exchange, Part mine, Step first_step) {
  const auto same = [](const void*, int member) { return member; };
  return gather_parts_among(exchange, std::move(mine), first_step, {exchange.rank(), exchange.size(), same, nullptr});
}

}  // namespace tulle
