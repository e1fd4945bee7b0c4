// A rendezvous at an address.
//
// How it works: rank 0 listens; every other rank calls, again and again until somebody answers, and sends a *request*:
// its job, who it is and its bytes. When all are there rank 0 sends each of them an *answer*: the bytes of all, or,
// when the time is over, who is missing. Rank 0 then closes its door. Until then a rank that has called and is gone is
// forgotten, so that another process may come in its place.
//
// Request: "TULLERDV", then version, round, rank, size, length of the job's name and length as u32, the job's name,
// bytes. Answer: "TULLERDA", then version, status, length of the job's name and length as u32, the job's name, content.
// Status 0: the bytes of all, each behind its u32 length; 1: who is missing; 2: what is wrong with the request.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/require_deadline.hpp"
#include "comm/tcp/entrance.hpp"
#include "comm/tcp/job_identity.hpp"
#include "comm/tcp/missing_ranks.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "comm/tcp/rendezvous_member.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/timed_io.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "TULLERDV", kAnswerMagic = "TULLERDA";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kVersionAt = 8, kRoundAt = 12, kRankAt = 16, kSizeAt = 20, kJobLengthAt = 24, kLengthAt = 28,
                      kRequestBytes = 32;
constexpr std::size_t kStatusAt = 12, kAnswerJobLengthAt = 16, kAnswerLengthAt = 20, kAnswerBytes = 24;
constexpr std::uint32_t kGathered = 0, kIncomplete = 1, kRefused = 2;
constexpr std::uint32_t kMostBytesOfRank = 1 << 16;  // a transport's card has a few hundred
constexpr std::uint32_t kMostBytesOfReason = 1 << 12;
constexpr std::chrono::milliseconds kBetweenCalls(20);

std::string with_numbers(std::string_view magic, std::initializer_list<std::size_t> numbers) {
  std::string text(magic);
  for (const std::size_t number : numbers) append_u32(text, static_cast<std::uint32_t>(number));
  return text;
}

std::string answer(std::uint32_t status, const std::string& job, const std::string& content) {
  return with_numbers(kAnswerMagic, {kVersion, status, job.size(), content.size()}) + job + content;
}

bool begins_with(std::string_view said, std::string_view magic) {
  return said.substr(0, magic.size()) == magic.substr(0, said.size());
}

// Of a stranger's words. One that speaks another version is told so; only the beginning is the same in all.
Entrance::Verdict judge_request(std::string_view said) {
  using Kind = Entrance::Verdict::Kind;
  if (!begins_with(said, kMagic)) return {Kind::wrong, "it does not speak Tulle's rendezvous"};
  if (said.size() < kRoundAt) return {};
  if (u32_at(said, kVersionAt) != kVersion) return {Kind::whole};
  if (said.size() < kRequestBytes) return {};
  const std::size_t job = u32_at(said, kJobLengthAt), length = u32_at(said, kLengthAt);
  if (job > kMostBytesOfJob || length > kMostBytesOfRank) return {Kind::wrong, "it announces too many bytes"};
  if (said.size() > kRequestBytes + job + length) return {Kind::wrong, "it says more than it announced"};
  return {said.size() == kRequestBytes + job + length ? Kind::whole : Kind::part};
}

// What rank 0 does.
class Host {
 public:
  Host(std::uint32_t round, int size, const std::string& job, const std::string& mine, std::vector<Fd> listeners)
      : round_(round),
        job_(job),
        all_(static_cast<std::size_t>(size)),
        callers_(static_cast<std::size_t>(size)),
        entrance_(std::move(listeners), judge_request) {
    all_[0] = mine;
  }

  /// Until all are here and still there, or the deadline.
  void gather(const Deadline& deadline) {
    bool was_complete = false;
    while (!deadline.has_passed()) {
      wait(was_complete ? 0 : deadline.milliseconds_left(entrance_.is_busy() ? 100 : 1000));
      for (Entrance::Arrival& arrival : entrance_.look()) take(std::move(arrival));
      const bool is_complete = missing().empty();
      if (is_complete && was_complete) return;
      was_complete = is_complete;
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < callers_.size(); ++rank) {
      if (!callers_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  void answer_all(const std::string& text, const Deadline& deadline) const {
    std::vector<Parcel> parcels;
    for (const Fd& caller : callers_) {
      if (caller) parcels.push_back({caller.get(), text});
    }
    send_all(std::move(parcels), deadline);  // one that is gone will be missed by others
  }

  const std::vector<std::string>& all() const { return all_; }
  std::string refusals() const { return entrance_.refusals(); }

 private:
  // Whoever has said its words waits for the answer: what can be read then is the end of the connection.
  void wait(int milliseconds) {
    std::vector<pollfd> entries = {{entrance_.fd(), POLLIN, 0}};
    for (const Fd& caller : callers_) entries.push_back({caller.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), milliseconds) <= 0) return;
    for (std::size_t rank = 0; rank < callers_.size(); ++rank) {
      if (entries[rank + 1].revents != 0) callers_[rank].close();
    }
  }

  void take(Entrance::Arrival arrival) {
    const std::string wrong = why_not(arrival.said);
    if (!wrong.empty()) {
      send_whole(arrival.fd.get(), answer(kRefused, "", wrong.substr(0, kMostBytesOfReason)), Deadline(1));
      return entrance_.count_refusal(arrival.address, wrong);
    }
    if (u32_at(arrival.said, kRoundAt) != round_) return;  // a rank that is ahead calls again
    const std::uint32_t rank = u32_at(arrival.said, kRankAt);
    all_[rank] = arrival.said.substr(kRequestBytes + u32_at(arrival.said, kJobLengthAt));
    callers_[rank] = std::move(arrival.fd);
  }

  // Empty where the request is one of this job's.
  std::string why_not(const std::string& said) const {
    const auto number = [&](std::size_t at) { return u32_at(said, at); };
    if (number(kVersionAt) != kVersion) {
      return fmt::format("a rank speaks version {} of the rendezvous, rank 0 speaks {}: all ranks need the same Tulle",
                         number(kVersionAt), kVersion);
    }
    const std::uint32_t rank = number(kRankAt);
    const std::string job = said.substr(kRequestBytes, number(kJobLengthAt));
    if (job != job_) {
      return fmt::format("rank {} of {} came to where rank 0 of {} waits: {}", rank, describe_job(job),
                         describe_job(job_), kJobRemedy);
    }
    if (number(kSizeAt) != all_.size()) {
      return fmt::format("rank {} says that the job has {} ranks, rank 0 says {}", rank, number(kSizeAt), all_.size());
    }
    if (rank >= all_.size()) return fmt::format("there is no rank {} in a job of size {}", rank, all_.size());
    if (number(kRoundAt) == round_ && (rank == 0 || (callers_[rank] && !has_hung_up(callers_[rank].get())))) {
      return fmt::format("two processes say that they are rank {} of {}; if they are of two jobs, {}", rank,
                         describe_job(job_), kJobRemedy);
    }
    return {};
  }

  std::uint32_t round_;
  std::string job_;
  std::vector<std::string> all_;
  std::vector<Fd> callers_;  ///< by rank; those that are here
  Entrance entrance_;
};

class AddressRendezvous final : public RendezvousMember {
 public:
  explicit AddressRendezvous(const AddressRendezvousOptions& options)
      : RendezvousMember("address_rendezvous", options.rank, options.size),
        options_(options),
        job_(required_job(options.job)) {
    if (options.size > 1 && (options.host.empty() || options.port == 0)) {
      throw Error(ErrorKind::bad_input, "address_rendezvous: a host and a port are needed");
    }
  }

  std::string meeting_host() const override { return options_.host; }

  std::vector<std::string> allgather(const std::string& mine) override {
    if (mine.size() > kMostBytesOfRank) throw Error(ErrorKind::bad_input, "rendezvous: more than 64 KiB from one rank");
    round_ += 1;
    if (size() == 1) return {mine};
    const Deadline deadline(options_.deadline_seconds);
    return rank() == 0 ? host(mine, deadline) : call(mine, deadline);
  }

 private:
  std::string place() const { return fmt::format("{}:{}", options_.host, options_.port); }

  std::vector<std::string> host(const std::string& mine, const Deadline& deadline) const {
    Host host(round_, size(), job_, mine, listen_patiently(deadline));
    host.gather(deadline);
    if (host.missing().empty()) {
      host.answer_all(answer(kGathered, job_, pack_strings(host.all())), Deadline(options_.deadline_seconds));
      return host.all();
    }
    const Error error = missing_ranks_error(host.missing(), fmt::format("come to {}", place()),
                                            options_.deadline_seconds, host.refusals());
    host.answer_all(answer(kIncomplete, job_, std::string(error.what()).substr(0, kMostBytesOfReason)), Deadline(1));
    throw error.at_rank(rank());
  }

  // A rank that calls may hold the port for a moment, by a connection with itself.
  std::vector<Fd> listen_patiently(const Deadline& deadline) const {
    SocketAddress::resolve(options_.host, 0, deadline);
    for (const Deadline patience(1);;) {
      try {
        std::vector<Fd> listeners;
        for (const SocketAddress& address : addresses_to_listen_at(options_.host)) {
          listeners.push_back(listen_at(address, {options_.port, options_.port}));
        }
        return listeners;
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
    std::string last_failure = "nobody answered";
    while (!deadline.has_passed()) {
      for (const SocketAddress& address : SocketAddress::resolve(options_.host, options_.port, deadline)) {
        last_failure = "who listens there says nothing";
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

  std::string request(const std::string& mine) const {
    return with_numbers(kMagic, {kVersion, round_, static_cast<std::size_t>(rank()), static_cast<std::size_t>(size()),
                                 job_.size(), mine.size()}) +
           job_ + mine;
  }

  std::optional<std::string> call_once(const SocketAddress& address, const std::string& mine, const Deadline& deadline,
                                       const Deadline& patience) const {
    const Fd fd = begin_connect(address);
    if (!wait_for(fd.get(), POLLOUT, deadline)) return std::nullopt;
    if (const int code = pending_error(fd.get()); code != 0) {
      throw Error(ErrorKind::system, describe_errno("connect", code));
    }
    if (is_connected_with_itself(fd.get())) return std::nullopt;
    if (!send_whole(fd.get(), request(mine), deadline)) return std::nullopt;
    return receive_answer(fd.get(), patience);
  }

  // Nothing where the other side hung up. What it announces is believed as far as a job of this size can have it.
  std::optional<std::string> receive_answer(int fd, const Deadline& patience) const {
    const auto head = receive_whole(fd, kAnswerBytes, patience);
    if (!head) return std::nullopt;
    if (!head->starts_with(kAnswerMagic)) throw_not_a_rendezvous("what listens there is no rendezvous of Tulle's");
    if (const std::uint32_t version = u32_at(*head, kVersionAt); version != kVersion) {
      throw Error(ErrorKind::mismatch, fmt::format("rank 0 speaks version {} of the rendezvous, rank {} speaks {}: all "
                                                   "ranks need the same Tulle",
                                                   version, rank(), kVersion));
    }
    const std::uint32_t status = u32_at(*head, kStatusAt);
    const std::size_t job_length = u32_at(*head, kAnswerJobLengthAt), length = u32_at(*head, kAnswerLengthAt);
    const std::size_t most = status == kGathered ? static_cast<std::size_t>(size()) * (kMostBytesOfRank + 4)
                                                 : std::size_t{kMostBytesOfReason};
    if (job_length > kMostBytesOfJob || length > most) {
      throw_not_a_rendezvous(
          fmt::format("it announces {} bytes, which no answer for {} ranks has", job_length + length, size()));
    }
    const auto job = receive_whole(fd, job_length, patience);
    const auto content = job ? receive_whole(fd, length, patience) : std::nullopt;
    if (!content) return std::nullopt;
    if (status != kGathered) {
      throw Error(status == kIncomplete ? ErrorKind::deadline : ErrorKind::mismatch, *content);
    }
    if (*job != job_) {
      throw Error(ErrorKind::mismatch, fmt::format("this is {}, and at {} rank 0 of {} answered: {}",
                                                   describe_job(job_), place(), describe_job(*job), kJobRemedy));
    }
    return content;
  }

  // Not for good: rank 0 may still come.
  [[noreturn]] static void throw_not_a_rendezvous(const std::string& what) { throw Error(ErrorKind::system, what); }

  AddressRendezvousOptions options_;
  std::string job_;
  std::uint32_t round_ = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> address_rendezvous(const AddressRendezvousOptions& options) {
  require_deadline(options.deadline_seconds, "AddressRendezvousOptions: the deadline");
  return std::make_unique<AddressRendezvous>(options);
}

}  // namespace tulle
