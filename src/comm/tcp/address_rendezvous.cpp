// A rendezvous at an address.
//
// How it works: rank 0 listens; every other rank calls, again and again until somebody answers, and sends a *request*:
// who it is and its bytes. When all are there rank 0 sends each of them an *answer*: the bytes of all, or, when the
// time is over, who is missing. Rank 0 then closes its door.
//
// Request: "TULLERDV", version, round, rank, size and length as u32, bytes. Answer: u32 status (0: the bytes of all,
// each behind its u32 length; 1: who is missing; 2: what is wrong with the request), u32 length, content.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/tcp/missing_ranks.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "comm/tcp/rendezvous_member.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/timed_io.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "TULLERDV";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionAt = 8, kRoundAt = 12, kRankAt = 16, kSizeAt = 20, kLengthAt = 24, kRequestBytes = 28;
constexpr std::size_t kStatusBytes = 8;
constexpr std::uint32_t kGathered = 0, kIncomplete = 1, kRefused = 2;
constexpr std::uint32_t kMostBytesOfRank = 1 << 20;  // a transport's card has a few hundred
constexpr std::chrono::milliseconds kBetweenCalls(20);

std::string request(std::uint32_t round, int rank, int size, const std::string& bytes) {
  std::string text(kMagic);
  for (const std::uint32_t number : {kVersion, round, static_cast<std::uint32_t>(rank),
                                     static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(bytes.size())}) {
    append_u32(text, number);
  }
  return text + bytes;
}

std::string answer(std::uint32_t status, const std::string& content) {
  std::string text;
  append_u32(text, status);
  append_u32(text, static_cast<std::uint32_t>(content.size()));
  return text + content;
}

// Somebody who has called and has not said everything yet, or waits for the answer.
struct Caller {
  Fd fd;
  std::string said = {};
  bool is_rank = false;
};

// What rank 0 does.
class Host {
 public:
  Host(std::uint32_t round, int size, const std::string& mine)
      : round_(round), all_(static_cast<std::size_t>(size)), has_come_(static_cast<std::size_t>(size)) {
    all_[0] = mine;
    has_come_[0] = true;
  }

  void gather(int listener, const Deadline& deadline) {
    while (!missing().empty() && !deadline.has_passed()) {
      std::vector<pollfd> entries = {{listener, POLLIN, 0}};
      for (const Caller& caller : callers_) entries.push_back({caller.is_rank ? -1 : caller.fd.get(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), deadline.milliseconds_left(1000)) <= 0) continue;
      for (std::size_t i = 1; i < entries.size(); ++i) {
        if (entries[i].revents != 0) listen_to(callers_[i - 1]);
      }
      std::erase_if(callers_, [](const Caller& caller) { return !caller.fd; });
      if (entries[0].revents != 0) let_in(listener);
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < has_come_.size(); ++rank) {
      if (!has_come_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  void answer_all(const std::string& text, const Deadline& deadline) {
    for (const Caller& caller : callers_) {
      if (caller.is_rank) send_whole(caller.fd.get(), text, deadline);  // one that is gone will be missed by others
    }
  }

  const std::vector<std::string>& all() const { return all_; }

 private:
  void let_in(int listener) {
    constexpr std::size_t kMostStrangers = 64;
    Fd fd = accept_from(listener);
    const auto strangers = std::count_if(callers_.begin(), callers_.end(), [](const Caller& c) { return !c.is_rank; });
    if (fd && static_cast<std::size_t>(strangers) < all_.size() + kMostStrangers) callers_.push_back({std::move(fd)});
  }

  void listen_to(Caller& caller) {
    char chunk[4096];
    const ssize_t got = ::recv(caller.fd.get(), chunk, sizeof chunk, 0);
    if (got <= 0) {
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) caller.fd.close();
      return;
    }
    caller.said.append(chunk, static_cast<std::size_t>(got));
    if (!is_plausible(caller.said)) {
      caller.fd.close();
    } else if (is_whole(caller.said)) {
      take(caller);
    }
  }

  bool is_plausible(const std::string& said) const {
    const std::size_t known = std::min(said.size(), kMagic.size());
    if (said.compare(0, known, kMagic, 0, known) != 0) return false;
    if (said.size() < kRequestBytes) return true;
    const std::uint32_t length = u32_at(said, kLengthAt);
    return length <= kMostBytesOfRank && said.size() <= kRequestBytes + length;
  }

  static bool is_whole(const std::string& said) {
    return said.size() >= kRequestBytes && said.size() == kRequestBytes + u32_at(said, kLengthAt);
  }

  void take(Caller& caller) {
    const auto number = [&](std::size_t at) { return u32_at(caller.said, at); };
    const std::uint32_t rank = number(kRankAt);
    std::string wrong;
    if (number(kVersionAt) != kVersion) {
      wrong = fmt::format("rank {} speaks version {} of the rendezvous, rank 0 speaks {}", rank, number(kVersionAt),
                          kVersion);
    } else if (number(kSizeAt) != all_.size()) {
      wrong = fmt::format("rank {} says that the job has {} ranks, rank 0 says {}", rank, number(kSizeAt), all_.size());
    } else if (rank >= all_.size()) {
      wrong = fmt::format("there is no rank {} in a job of size {}", rank, all_.size());
    } else if (number(kRoundAt) != round_) {
      return caller.fd.close();  // a rank that is ahead calls again
    } else if (has_come_[rank]) {
      wrong = fmt::format("two processes say that they are rank {}", rank);
    }
    if (!wrong.empty()) {
      send_whole(caller.fd.get(), answer(kRefused, wrong), Deadline(1));
      return caller.fd.close();
    }
    has_come_[rank] = true;
    all_[rank] = caller.said.substr(kRequestBytes);
    caller.is_rank = true;
  }

  std::uint32_t round_;
  std::vector<std::string> all_;
  std::vector<bool> has_come_;
  std::vector<Caller> callers_;
};

class AddressRendezvous final : public RendezvousMember {
 public:
  explicit AddressRendezvous(const AddressRendezvousOptions& options)
      : RendezvousMember("address_rendezvous", options.rank, options.size), options_(options) {
    if (options.size > 1 && (options.host.empty() || options.port == 0)) {
      throw Error(ErrorKind::bad_input, "address_rendezvous: a host and a port are needed");
    }
  }

  std::string meeting_host() const override { return options_.host; }

  std::vector<std::string> allgather(const std::string& mine) override {
    if (mine.size() > kMostBytesOfRank) throw Error(ErrorKind::bad_input, "rendezvous: more than 1 MiB from one rank");
    round_ += 1;
    if (size() == 1) return {mine};
    const Deadline deadline(options_.deadline_seconds);
    return rank() == 0 ? host(mine, deadline) : call(mine, deadline);
  }

 private:
  std::string place() const { return fmt::format("{}:{}", options_.host, options_.port); }

  std::vector<std::string> host(const std::string& mine, const Deadline& deadline) const {
    const Fd listener = listen_patiently(address_to_listen_at(options_.host));
    Host host(round_, size(), mine);
    host.gather(listener.get(), deadline);
    if (host.missing().empty()) {
      host.answer_all(answer(kGathered, pack_strings(host.all())), Deadline(options_.deadline_seconds));
      return host.all();
    }
    const Error error =
        missing_ranks_error(host.missing(), fmt::format("come to {}", place()), options_.deadline_seconds);
    host.answer_all(answer(kIncomplete, error.what()), Deadline(1));
    throw error.at_rank(rank());
  }

  // A rank that calls may hold the port for a moment, by a connection with itself.
  Fd listen_patiently(const SocketAddress& door) const {
    for (const Deadline patience(1);;) {
      try {
        return listen_at(door, {options_.port, options_.port});
      } catch (const Error&) {
        if (patience.has_passed()) throw;
      }
      std::this_thread::sleep_for(kBetweenCalls);
    }
  }

  // Rank 0 gives up at its own deadline, which began when it came; a little later it is sure not to answer any more.
  std::vector<std::string> call(const std::string& mine, const Deadline& deadline) const {
    constexpr double kForTheAnswerSeconds = 2;
    const Deadline patience(options_.deadline_seconds + kForTheAnswerSeconds);
    std::string last_failure = "nobody listens there";
    while (!deadline.has_passed()) {
      for (const SocketAddress& address : SocketAddress::resolve(options_.host, options_.port)) {
        try {
          if (auto content = call_once(address, mine, deadline, patience)) {
            return unpack_strings(*content, static_cast<std::size_t>(size()), "rendezvous: rank 0's answer");
          }
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::system) throw error.at_rank(rank());
          last_failure = error.what();
        }
      }
      std::this_thread::sleep_for(kBetweenCalls);
    }
    throw Error(ErrorKind::deadline, fmt::format("rank 0 did not answer at {} within {} s: {}", place(),
                                                 options_.deadline_seconds, last_failure))
        .with_peer(0)
        .at_rank(rank());
  }

  std::optional<std::string> call_once(const SocketAddress& address, const std::string& mine, const Deadline& deadline,
                                       const Deadline& patience) const {
    const Fd fd = begin_connect(address);
    if (!wait_for(fd.get(), POLLOUT, deadline)) return std::nullopt;
    if (const int code = pending_error(fd.get()); code != 0) {
      throw Error(ErrorKind::system, describe_errno("connect", code));
    }
    if (is_connected_with_itself(fd.get())) return std::nullopt;
    if (!send_whole(fd.get(), request(round_, rank(), size(), mine), deadline)) return std::nullopt;
    const auto status = receive_whole(fd.get(), kStatusBytes, patience);
    if (!status) return std::nullopt;
    const auto content = receive_whole(fd.get(), u32_at(*status, 4), patience);
    const std::uint32_t code = u32_at(*status, 0);
    if (content && code != kGathered) {
      throw Error(code == kIncomplete ? ErrorKind::deadline : ErrorKind::mismatch, *content);
    }
    return content;
  }

  AddressRendezvousOptions options_;
  std::uint32_t round_ = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> address_rendezvous(const AddressRendezvousOptions& options) {
  return std::make_unique<AddressRendezvous>(options);
}

}  // namespace tulle
