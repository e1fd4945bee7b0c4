#include "collectives/gather.hpp"

#include <algorithm>
#include <utility>

#include "collectives/split.hpp"
#include "collectives/steps.hpp"
#include "comm/bruck.hpp"

namespace tulle {
namespace {

// A frame that is passed on as it came; only its head until then, where it comes alone.
struct EncodedPart {
  FrameHead head;
  Segments segments;
  std::uint64_t data_bytes = 0;

  bool is_here() const { return !segments.empty(); }
};

EncodedPart take_part(const Exchange& exchange, std::span<const Buffer>& segments, int from) {
  EncodedPart part{exchange.head_of(from, segments), {}, 0};
  const std::size_t count = part.head.segment_count();
  if (segments.size() < count) reject_message(from, "frame field 'segments': some are missing");
  part.segments.assign(segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(count));
  part.data_bytes = bytes_of_body(part.segments);
  segments = segments.subspan(count);
  return part;
}

// An empty segment says that a head follows whose arrays come alone.
EncodedPart take_part_or_head(const Exchange& exchange, std::span<const Buffer>& segments, int from) {
  if (segments.empty() || !segments.front().empty()) return take_part(exchange, segments, from);
  EncodedPart part{exchange.head_of(from, segments.subspan(1)), {}, 0};
  segments = segments.subspan(2);
  return part;
}

// What a member knows: its own part and those of the members after it, by distance.
class Gathering {
 public:
  Gathering(Exchange& exchange, Part mine, Step first_step, const Members& members)
      : exchange_(exchange),
        members_(members),
        first_step_(first_step),
        known_(static_cast<std::size_t>(members.size)),
        parts_(static_cast<std::size_t>(members.size)) {
    EncodedPart& own = at(0);
    own.data_bytes = exchange.encode(mine, own.segments);
    own.head = decode_frame_head(own.segments.front().bytes());
    part_at(0) = std::move(mine);
    if (is_large(own)) pass_on(0);
  }

  int rank_of(int member) const { return members_[member]; }
  int rank_after() const { return rank_of(member_at(1)); }
  Step step_alone(int distance) const { return after(after_rounds(first_step_), static_cast<unsigned>(distance)); }

  void send(const patterns::BruckRound& round, Step step) {
    Segments bundle;
    std::uint64_t data_bytes = 0;
    for (int distance = 0; distance < round.blocks; ++distance) data_bytes += add_to(bundle, at(distance));
    exchange_.operation().send(rank_of(round.send_to), step, std::move(bundle), data_bytes);
  }

  void receive(const Incoming& message, int distance, int blocks) {
    std::span<const Buffer> segments = message.segments;
    for (int i = distance; i < distance + blocks; ++i) at(i) = take_part_or_head(exchange_, segments, message.from);
    require_all_read(segments, message.from);
  }

  bool comes_alone(int distance) const { return !known_[static_cast<std::size_t>(distance)].is_here(); }

  void receive_alone(const Incoming& message, int distance) {
    std::span<const Buffer> segments = message.segments;
    EncodedPart part = take_part(exchange_, segments, message.from);
    require_all_read(segments, message.from);
    if (part.head != at(distance).head) reject_message(message.from, "a frame is not the one that its head announced");
    at(distance) = std::move(part);
    if (distance + 1 < members_.size) pass_on(distance);
  }

  // What is here is decoded while other messages travel.
  void decode(int distance) {
    std::span<const Buffer> segments = at(distance).segments;
    part_at(distance) = exchange_.decode(rank_of(member_at(distance)), segments, landing_of(distance));
    exchange_.operation().push();
  }

  /// Makes room for a sparse result, once all heads are known, so that blocks are decoded into their places. Blocks
  /// that do not follow one another get none: joining them tells.
  void land_pairs(const LayoutRule& rule) {
    if (!follow_one_another() || at(0).segments.back().is_phantom()) return;
    first_pair_.assign(1, 0);
    for (int member = 0; member < members_.size; ++member) {
      first_pair_.push_back(first_pair_.back() + at(distance_of(member)).head.nnz);
    }
    if (!is_sparse(rule)) return;
    whole_.indices = Buffer::allocate(first_pair_.back() * index_bytes(exchange_.dimension()));
    whole_.values = Buffer::allocate(first_pair_.back() * size_of(exchange_.type()));
    landing_.emplace(exchange_.operation(), [this](Step step, std::span<const Buffer>, std::size_t segment,
                                                   std::uint64_t bytes) { return landing_for(step, segment, bytes); });
  }

  /// Messages that come from now on are not of this gather.
  JoinLanding take_whole() {
    landing_.reset();
    return std::move(whole_);
  }
  PoolVector<Part> take_parts() { return std::move(parts_); }

 private:
  EncodedPart& at(int distance) { return known_[static_cast<std::size_t>(distance)]; }
  int member_at(int distance) const { return (members_.rank + distance) % members_.size; }
  int distance_of(int member) const { return (member - members_.rank + members_.size) % members_.size; }
  Part& part_at(int distance) { return parts_[static_cast<std::size_t>(member_at(distance))]; }

  bool is_large(const EncodedPart& part) const {
    return goes_around(exchange_.operation().profile(), static_cast<double>(part.data_bytes), members_.size);
  }

  // Returns the bytes of data that this adds.
  std::uint64_t add_to(Segments& bundle, const EncodedPart& part) const {
    if (part.is_here() && !is_large(part)) {
      bundle.insert(bundle.end(), part.segments.begin(), part.segments.end());
      return part.data_bytes;
    }
    bundle.push_back(Buffer());
    bundle.push_back(encode_frame_head(part.head));
    return 0;
  }

  void pass_on(int distance) {
    const int before = rank_of(member_at(members_.size - 1));
    exchange_.operation().send(before, step_alone(distance + 1), at(distance).segments, at(distance).data_bytes);
  }

  bool follow_one_another() {
    std::uint64_t next = 0;
    for (int member = 0; member < members_.size; ++member) {
      const Range range = at(distance_of(member)).head.range;
      if (range.begin != std::exchange(next, range.end)) return false;
    }
    return true;
  }

  bool is_sparse(const LayoutRule& rule) const {
    const auto dense = [](const EncodedPart& part) { return part.head.layout == Layout::dense; };
    if (std::ranges::any_of(known_, dense)) return false;
    const std::uint64_t most = rule.most_sparse(exchange_.dimension(), exchange_.dimension(), exchange_.type());
    return rule.choice == LayoutChoice::sparse ||
           (rule.choice == LayoutChoice::automatic && first_pair_.back() <= most);
  }

  PairLanding landing_of(int distance) const {
    if (whole_.indices.empty()) return {};
    const auto member = static_cast<std::size_t>(member_at(distance));
    const std::uint64_t first = first_pair_[member], count = first_pair_[member + 1] - first;
    const std::size_t index = index_bytes(exchange_.dimension()), value = size_of(exchange_.type());
    return {whole_.indices.slice(first * index, count * index), whole_.values.slice(first * value, count * value)};
  }

  // The values of a part that comes alone, where they are what the result has.
  Buffer landing_for(Step step, std::size_t segment, std::uint64_t bytes) {
    const int distance = step - step_alone(0);
    const bool alone = distance >= 1 && distance < members_.size;
    if (!alone || segment != 2 || at(distance).head.value_coding != ValueCoding::raw) return {};
    Buffer values = landing_of(distance).values;
    return values.size() == bytes ? values : Buffer();
  }

  Exchange& exchange_;
  const Members& members_;
  Step first_step_;
  PoolVector<EncodedPart> known_;  // by distance
  PoolVector<Part> parts_;         // by member
  JoinLanding whole_;
  PoolVector<std::uint64_t> first_pair_;  // of each member's block in the whole, and their number
  std::optional<Operation::Landing> landing_;
};

Task<> exchange_small_parts(Exchange& exchange, Gathering& gathering, Step first_step, const Members& members) {
  Step step = first_step;
  for (int distance = 1; distance < members.size; distance *= 2, ++step) {
    const patterns::BruckRound round = patterns::bruck_round(members.rank, members.size, distance);
    gathering.send(round, step);
    const Incoming message = co_await exchange.operation().receive(gathering.rank_of(round.receive_from), step);
    gathering.receive(message, distance, round.blocks);
  }
}

Task<> receive_large_parts(Exchange& exchange, Gathering& gathering, const Members& members) {
  for (int distance = 1; distance < members.size; ++distance) {
    if (gathering.comes_alone(distance)) {
      const Incoming message =
          co_await exchange.operation().receive(gathering.rank_after(), gathering.step_alone(distance));
      gathering.receive_alone(message, distance);
    }
    gathering.decode(distance);
  }
}

}  // namespace

bool goes_around(const Profile& profile, double bytes, int members) {
  constexpr double kLatenciesOfLarge = 16;  // one more at every hop then costs little
  const double wire_seconds = bytes * profile.beta_seconds_per_byte;
  const bool can_go_around = members > 1 && members <= kMostMembersAlone;
  return can_go_around && wire_seconds >= kLatenciesOfLarge * profile.alpha_seconds;
}

Task<PoolVector<Part>> gather_parts(Exchange& exchange, Part mine, Step first_step, Members members) {
  Gathering gathering(exchange, std::move(mine), first_step, members);
  co_await exchange_small_parts(exchange, gathering, first_step, members);
  co_await receive_large_parts(exchange, gathering, members);
  co_return gathering.take_parts();
}

Task<PoolVector<Part>> gather_parts(Exchange& exchange, Part mine, Step first_step) {
  return gather_parts(exchange, std::move(mine), first_step, Members::all(exchange));
}

Task<Part> gather_blocks(Exchange& exchange, Part mine, Step first_step, Members members,
                         std::optional<LayoutRule> rule, Buffer result) {
  Gathering gathering(exchange, std::move(mine), first_step, members);
  co_await exchange_small_parts(exchange, gathering, first_step, members);
  gathering.land_pairs(rule.value_or(exchange.layout_rule()));
  co_await receive_large_parts(exchange, gathering, members);
  JoinLanding whole = gathering.take_whole();
  whole.dense = std::move(result);
  const PoolVector<Part> blocks = gathering.take_parts();
  co_return exchange.concatenate(blocks, rule, std::move(whole));
}

Task<Part> gather_blocks(Exchange& exchange, Part mine, Step first_step, std::optional<LayoutRule> rule,
                         Buffer result) {
  return gather_blocks(exchange, std::move(mine), first_step, Members::all(exchange), rule, std::move(result));
}

}  // namespace tulle
